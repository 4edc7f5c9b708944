package arch_test

import (
	"go/scanner"
	"go/token"
	"strings"
)

// codeLines counts the lines of a source that hold code. Comments and blank lines are free:
// a limit that charges for them is paid with air and explanations. A raw string counts
// with all its lines.
func codeLines(source string) int {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(source))

	var s scanner.Scanner
	s.Init(file, []byte(source), nil, 0) // without ScanComments, comments are skipped

	lines := map[int]bool{}

	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}

		if tok == token.SEMICOLON && text == "\n" {
			continue // put in by the scanner
		}

		first := file.Line(pos)
		for line := first; line <= first+strings.Count(text, "\n"); line++ {
			lines[line] = true
		}
	}
}
