package scenario

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page that explains scenarios names every statement and every key of a job.
func TestStatementsAreDocumented(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../../../docs/explanation/simulator.md")
	if err != nil {
		t.Fatal(err)
	}

	documented := map[string]bool{}
	for _, span := range regexp.MustCompile("`[^`\n]+`").FindAllString(string(page), -1) {
		documented[strings.Fields(strings.Trim(span, "`"))[0]] = true
	}

	var d draft
	for _, list := range [][]string{keysOf(statements()), keysOf(d.table())} {
		for _, word := range list {
			name := strings.TrimSuffix(word, "*")
			if !documented[name] && !strings.Contains(string(page), " "+name+" ") {
				t.Errorf("docs/explanation/simulator.md does not explain %q", name)
			}
		}
	}
}
