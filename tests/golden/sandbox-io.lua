-- flin: --sandbox
io.open("/etc/passwd")
