-- generator(seed): whole numbers that look random, the same for a seed: each
-- call with n gives one of 1 to n.
return function (seed)
  local x = seed * 2654435761 % 2^32
  return function (n)
    x = (x * 1664525 + 1013904223) % 2^32
    return math.floor(x / 2^32 * n) + 1
  end
end
