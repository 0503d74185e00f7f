-- Numbers by seed, the same everywhere.
return function (s)
  local r = {}
  function r.uniform()
    s = s * 6364136223846793005 + 1442695040888963407
    return (s >> 11) / 2.0 ^ 53
  end
  function r.chance(p) return r.uniform() < p end
  function r.pick(n) return math.floor(r.uniform() * n) end
  return r
end
