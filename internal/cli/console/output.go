package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"trainyard/internal/cli/table"
)

// The output formats.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
)

// Format is the value of the flag -o: one of a few words.
type Format struct {
	Into    *string
	Allowed []string
}

// String returns the word.
func (f Format) String() string {
	if f.Into == nil {
		return ""
	}

	return *f.Into
}

// Type names the flag's value in help.
func (f Format) Type() string { return "format" }

// Set takes a word if it is one of the allowed.
func (f Format) Set(s string) error {
	if !slices.Contains(f.Allowed, s) {
		return fmt.Errorf("there is no format %q: choose %s", s, strings.Join(f.Allowed, ", "))
	}

	*f.Into = s

	return nil
}

// OutputFlag gives a command the flag -o.
func (c *Console) OutputFlag(cmd *cobra.Command, extra ...string) {
	allowed := append(append([]string{Table}, extra...), JSON, YAML)
	cmd.Flags().VarP(Format{&c.Output, allowed}, "output", "o", strings.Join(allowed, ", "))
	// It fails only if the flag is not there or has a completion already.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// QuietFlag gives a command the flag -q.
func (c *Console) QuietFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.Quiet, "quiet", "q", false, "print IDs only")
	cmd.MarkFlagsMutuallyExclusive("quiet", "output")
}

// YesFlag gives a command the flag -y.
func (c *Console) YesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.Yes, "yes", "y", false, "do not ask for confirmation")
}

// Show writes a value in the format that was asked for: as JSON or YAML, the
// ids alone, or by the function that writes it for people.
func (c *Console) Show(value any, ids func() []string, people func() error) error {
	switch {
	case c.Output == JSON:
		return WriteJSON(c.Stdout, value)
	case c.Output == YAML:
		return WriteYAML(c.Stdout, value)
	case c.Quiet:
		for _, s := range ids() {
			if _, err := fmt.Fprintln(c.Stdout, s); err != nil {
				return err
			}
		}

		return nil
	}

	return people()
}

// WriteJSON writes a value as JSON for people and programs.
func WriteJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)

	return encoder.Encode(value)
}

// WriteYAML writes a value with the names and the order of its JSON form.
func WriteYAML(w io.Writer, value any) error {
	text, err := ToYAML(value)
	if err != nil {
		return err
	}

	_, err = w.Write(text)

	return err
}

// ToYAML returns a value as YAML with the names and the order of its JSON form.
func ToYAML(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}

	var node yaml.Node // JSON is YAML; a node keeps the order of the keys
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}

	unflow(&node)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)

	if err := encoder.Encode(&node); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}

	return out.Bytes(), encoder.Close()
}

// unflow turns JSON's brackets and quotes into plain lines; the encoder quotes what needs it.
func unflow(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}

	for _, c := range n.Content {
		unflow(c)
	}
}

// Field is a name and a value of a thing that is shown alone.
type Field struct {
	Name, Value string
	Color       table.Color
	Wrap        bool // sentences: a long value goes on in the next line
}

// Pairs writes names and values, one pair a line, leaving out empty values.
func (c *Console) Pairs(namesAndValues ...string) error {
	var fields []Field
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		fields = append(fields, Field{Name: namesAndValues[i], Value: namesAndValues[i+1]})
	}

	return c.Fields(fields...)
}

// Fields is pairs with colours.
func (c *Console) Fields(fields ...Field) error {
	width := 0
	for _, f := range fields {
		if f.Value != "" {
			width = max(width, len(f.Name))
		}
	}

	var out strings.Builder

	for _, f := range fields {
		value := table.Plain(f.Value)
		if value == "" {
			continue
		}

		lines := []string{value}
		if f.Wrap {
			lines = table.Wrap(value, c.Columns(c.Stdout)-width-len(":  "))
		}

		head := f.Name + ":"
		for _, line := range lines {
			if c.Color(c.Stdout) {
				line = f.Color.Paint(line)
			}

			_, _ = fmt.Fprintf(&out, "%-*s  %s\n", width+1, head, line)
			head = ""
		}
	}

	_, err := io.WriteString(c.Stdout, out.String())

	return err
}

// WriteTable writes a table, or says that it is empty and what to do about it.
func (c *Console) WriteTable(t *table.Table, empty string, hints ...string) error {
	if t.Len() == 0 {
		c.Note("%s", empty)
		c.Next(hints...)
		return nil
	}

	return t.Write(c.Stdout)
}
