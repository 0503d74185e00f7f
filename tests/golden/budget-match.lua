-- flin: --sandbox --budget 20000000
string.match(("a"):rep(3000), ".-.-.-.-.-.-b", 1, true)
