package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// maxLabels bounds how many labels a node has.
const maxLabels = 32

// CheckLabel returns an error if a text cannot be a label: a name, or a name and a value, such as ssd or zone=a.
func CheckLabel(text string) error {
	name, value, has := strings.Cut(text, "=")

	for _, part := range []string{name, value} {
		if len(part) > 63 || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			name = ""
		}
	}

	if name == "" || has && value == "" {
		return fmt.Errorf("must be a name or name=value of lower-case letters, digits, '-', '_' and '.', e.g. ssd or "+
			"zone=a, got %.80q", text)
	}

	return nil
}

// CheckLabels refuses what cannot be the labels of a node.
func CheckLabels(labels []string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("must have at most %d entries, got %d", maxLabels, len(labels))
	}

	for i, l := range labels {
		if err := CheckLabel(l); err != nil {
			return err
		}

		if slices.Contains(labels[:i], l) {
			return fmt.Errorf("must have each entry once, got %q twice", l)
		}
	}

	return nil
}

// lacks reports whether an inventory does not have all labels of a list between bars.
func (inv *Inventory) lacks(labels string) bool {
	return slices.ContainsFunc(Names(labels), func(l string) bool { return !slices.Contains(inv.Labels, l) })
}
