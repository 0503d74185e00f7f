gdn:forward {}
