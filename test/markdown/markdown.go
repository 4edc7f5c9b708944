// Package markdown finds the fenced blocks of documents for tests: those that run what a page
// shows, and those that compare what a page names with what exists. It is imported by tests alone.
package markdown

import "strings"

const fence = "```"

// Block is a fenced block.
type Block struct {
	Line   int    // of the opening fence, from 1
	Info   string // what stands behind the opening fence, such as the language
	Body   []string
	Before string // the last line of prose before the block that is not blank, "" right behind another block
	Open   bool   // the document ends before the block does
}

// Language is the first word of the info of a block.
func (b *Block) Language() string {
	language, _, _ := strings.Cut(b.Info, " ")
	return language
}

// End is the line of the closing fence, or the one behind the document if the block is open.
func (b *Block) End() int { return b.Line + len(b.Body) + 1 }

// Blocks returns the fenced blocks of a document in their order.
func Blocks(text string) []Block {
	var list []Block
	var block *Block // nil outside
	before := ""

	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)

		switch {
		case block != nil && trimmed == fence:
			block.Open = false
			list = append(list, *block)
			block, before = nil, ""
		case block != nil:
			block.Body = append(block.Body, line)
		case strings.HasPrefix(trimmed, fence):
			info := strings.TrimPrefix(trimmed, fence)
			block = &Block{Line: i + 1, Info: info, Before: before, Open: true}
		case trimmed != "":
			before = line
		}
	}

	if block != nil {
		list = append(list, *block)
	}

	return list
}

// Prose returns the lines of a document with those of fenced blocks left blank, so that the numbers
// of lines stay.
func Prose(text string) []string {
	lines := strings.Split(text, "\n")

	for _, b := range Blocks(text) {
		for i := b.Line; i <= min(b.End(), len(lines)); i++ {
			lines[i-1] = ""
		}
	}

	return lines
}
