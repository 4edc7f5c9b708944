package spec

import (
	"embed"
	"fmt"
	"strings"
)

// Template is a job file to start from.
type Template struct {
	Name  string
	Title string // what it is for: the first line of the file
	Text  string
}

//go:embed templates/*.yaml
var templateFiles embed.FS

// Templates returns the job files to start from, the simplest first. Parse accepts each of them.
func Templates() ([]Template, error) {
	names := []string{"gpu", "torchrun", "nodes", "checkpoints", "deadline", "pipeline", "nightly"}
	all := make([]Template, len(names))

	for i, name := range names {
		text, err := templateFiles.ReadFile("templates/" + name + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("read template %s: %w", name, err)
		}

		first, _, _ := strings.Cut(string(text), "\n")
		title := strings.TrimSuffix(strings.TrimPrefix(first, "# "), ".")
		all[i] = Template{Name: name, Title: title, Text: string(text)}
	}

	return all, nil
}
