package information

import (
	"errors"
	"fmt"
	"strings"
)

// Page returns a page of documentation with the table of each comparison between its markers, which are put
// there by hand, where the reader needs the table:
//
//	<!-- information: bench-burst -->
//	<!-- end of information -->
//
// It fails if nothing is declared, if a declaration is unsound, or if the page lacks a table. The test of a
// benchmark compares the result with the page as it is, as a golden file.
func Page(page string, list []Comparison) (string, error) {
	if len(list) == 0 {
		return "", errors.New("no comparison is declared")
	}

	for i := range list {
		c := &list[i]
		if err := c.Check(); err != nil {
			return "", err
		}

		const end = "<!-- end of information -->"

		begin := fmt.Sprintf("<!-- information: %s -->\n", c.Name)

		before, rest, found := strings.Cut(page, begin)
		if !found {
			return "", fmt.Errorf("the page lacks the table of %s: put %q and %q where it belongs", c.Name, begin, end)
		}

		_, after, found := strings.Cut(rest, end)
		if !found {
			return "", fmt.Errorf("the table of %s has no end: %q", c.Name, end)
		}

		page = before + begin + "\n" + c.Markdown() + "\n" + end + after
	}

	return page, nil
}
