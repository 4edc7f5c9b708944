package table

import "testing"

func TestControlCharactersOfOutputAreShownAndDoNotAct(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct{ text, want string }{
		"plain text":                  {"loss 0.5 ± 0.1 – gut", "loss 0.5 ± 0.1 – gut"},
		"what formats text":           {"a\tb\r\x1b[1;31mred\x1b[0m\x1b[38:5:9m\x1b[m\n", "a\tb\r\x1b[1;31mred\x1b[0m\x1b[38:5:9m\x1b[m\n"},
		"the clipboard":               {"\x1b]52;c;ZXZpbA==\x07", "^[]52;c;ZXZpbA==^G"},
		"the title":                   {"\x1b]0;owned\x1b\\", "^[]0;owned^[\\"},
		"clear and cursor":            {"\x1b[2J\x1b[H", "^[[2J^[[H"},
		"an unfinished sequence":      {"\x1b[31", "^[[31"},
		"private mode that ends in m": {"\x1b[?25m\x1b[>4;2m", "^[[?25m^[[>4;2m"},
		"C1 in UTF-8":                 {"\u009b2J\u009d0;x\u009c", `\x9b2J\x9d0;x\x9c`},
		"C1 as bytes":                 {"\x9b2J\xff", "\\x9b2J\xff"},
		"others":                      {"\x00\b\v\f\x7f", "^@^H^K^L^?"},
		"a replacement character":     {"\ufffd\x1b", "\ufffd^["},
	} {
		if got := Visible(tt.text); got != tt.want {
			t.Errorf("%s: %q becomes %q, want %q", name, tt.text, got, tt.want)
		}
	}
}
