-- with(x, more): a table of what is in both; of what is, more's.
return function (x, more)
  local all = {}
  for k, u in pairs(x) do all[k] = u end
  for k, u in pairs(more or {}) do all[k] = u end
  return all
end
