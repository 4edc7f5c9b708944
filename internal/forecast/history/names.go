package history

import (
	"slices"
	"strings"
	"unicode"
)

// Normalize makes one of "Val-Loss", "val_loss" and "val/loss".
func Normalize(s string) string { return strings.Join(Words(s), "_") }

// Words are the words of a name in lower case.
func Words(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.'
	})
}

// NameWords are the words of a name without its numbers: the seventh run of a kind is
// called as the sixth is.
func NameWords(s string) []string {
	if len(s) > maxName {
		s = s[:maxName]
	}

	list := slices.DeleteFunc(Words(s), func(w string) bool {
		return strings.IndexFunc(w, unicode.IsLetter) < 0
	})
	slices.Sort(list)

	return slices.Compact(list)
}

// maxName is how much of a name or a command is looked at.
const maxName = 400
