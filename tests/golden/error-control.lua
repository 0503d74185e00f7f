error("\27[31mred\7 \r\127 \u{9b}2J \xff \u{e9}\tkept")
