-- Tokens from .. from + n - 1 of all inputs that have such.
return function (v, x, from, n)
  local some = {}
  for _, input in ipairs(v.inputs) do
    local timed = input.axes:find "^t"
    some[input.name] = timed and x[input.name]:narrow(2, from, n)
                    or x[input.name]
  end
  return some
end
