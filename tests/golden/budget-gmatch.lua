-- flin: --sandbox --budget 20000000
for w in string.gmatch(("a"):rep(3000), ".-.-.-.-.-.-b", 1, true) do end
