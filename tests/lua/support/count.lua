-- What a test counts: expect(ok, what, ...), or check(name, ok, why), and
-- finish() at its end.
local count = { passed = 0, failed = 0 }

-- What failed is known of a test that is stopped, too.
if io then io.stdout:setvbuf "line" end

-- what: a format where something follows it.
function count.expect(ok, what, ...)
  if ok then
    count.passed = count.passed + 1
  else
    count.failed = count.failed + 1
    print("FAIL " .. (select("#", ...) > 0 and what:format(...) or what))
  end
end

-- why: what was there instead.
function count.check(name, ok, why)
  count.expect(ok, "%s: %s", name, why)
end

function count.finish()
  print(("%d passed, %d failed"):format(count.passed, count.failed))
  os.exit(count.failed == 0 and 0 or 1)
end

return count
