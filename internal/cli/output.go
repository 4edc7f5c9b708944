package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"trainyard/internal/cli/table"
	"trainyard/internal/job"
)

// The output formats.
const (
	outTable = "table"
	outWide  = "wide"
	outJSON  = "json"
	outYAML  = "yaml"
)

// format is the value of the flag -o: one of a few words.
type format struct {
	into    *string
	allowed []string
}

func (f format) String() string {
	if f.into == nil {
		return ""
	}
	return *f.into
}

func (f format) Type() string { return "format" }

func (f format) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("there is no format %q: choose %s", s, strings.Join(f.allowed, ", "))
	}
	*f.into = s
	return nil
}

// outputFlag gives a command the flag -o.
func (a *app) outputFlag(cmd *cobra.Command, extra ...string) {
	allowed := append(append([]string{outTable}, extra...), outJSON, outYAML)
	cmd.Flags().VarP(format{&a.output, allowed}, "output", "o", strings.Join(allowed, ", "))
	// It fails only if the flag is not there or has a completion already.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// quietFlag gives a command the flag -q.
func (a *app) quietFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print ids only")
	cmd.MarkFlagsMutuallyExclusive("quiet", "output")
}

// yesFlag gives a command the flag -y.
func (a *app) yesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask")
}

// show writes a value in the format that was asked for: as JSON or YAML, the
// ids alone, or by the function that writes it for people.
func (a *app) show(value any, ids func() []string, people func() error) error {
	switch {
	case a.output == outJSON:
		return writeJSON(a.env.Stdout, value)
	case a.output == outYAML:
		return writeYAML(a.env.Stdout, value)
	case a.quiet:
		for _, s := range ids() {
			if _, err := fmt.Fprintln(a.env.Stdout, s); err != nil {
				return err
			}
		}
		return nil
	}
	return people()
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// writeYAML writes a value with the names and the order of its JSON form.
func writeYAML(w io.Writer, value any) error {
	text, err := toYAML(value)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func toYAML(value any) ([]byte, error) {
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

// statusColor is the colour of a job's status word.
func statusColor(s job.Status) table.Color {
	switch s {
	case job.StatusSucceeded:
		return table.Green
	case job.StatusRunning, job.StatusStarting:
		return table.Cyan
	case job.StatusPending, job.StatusPaused, job.StatusPausing, job.StatusRecovering, job.StatusPreempted:
		return table.Yellow
	case job.StatusFailed, job.StatusFailedSetup, job.StatusOutOfMemory, job.StatusTimeout, job.StatusNodeFail:
		return table.Red
	case job.StatusCancelled, job.StatusCancelling:
		return table.Gray
	}
	return table.NoColor
}

// oneOf reports a flag value that is none of the words that may be there.
func oneOf[T ~string](cmd *cobra.Command, flag, value string, allowed []T) error {
	words := make([]string, len(allowed))
	for i, w := range allowed {
		words[i] = string(w)
	}
	if value == "" || slices.Contains(words, value) {
		return nil
	}
	return usagef(cmd, "--%s cannot be %q: choose %s", flag, value, strings.Join(words, ", "))
}

// field is a name and a value of a thing that is shown alone.
type field struct {
	name, value string
	color       table.Color
}

// pairs writes names and values, one pair a line, leaving out empty values.
func (a *app) pairs(namesAndValues ...string) error {
	var fields []field
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		fields = append(fields, field{name: namesAndValues[i], value: namesAndValues[i+1]})
	}
	return a.fields(fields...)
}

// fields is pairs with colours.
func (a *app) fields(fields ...field) error {
	width := 0
	for _, f := range fields {
		if f.value != "" {
			width = max(width, len(f.name))
		}
	}
	var out strings.Builder
	for _, f := range fields {
		value := table.Plain(f.value)
		if value == "" {
			continue
		}
		if a.color(a.env.Stdout) {
			value = f.color.Paint(value)
		}
		_, _ = fmt.Fprintf(&out, "%-*s  %s\n", width+1, f.name+":", value)
	}
	_, err := io.WriteString(a.env.Stdout, out.String())
	return err
}

// writeTable writes a table, or says that it is empty and what to do about it.
func (a *app) writeTable(t *table.Table, empty string, hints ...string) error {
	if t.Len() == 0 {
		a.note("%s", empty)
		a.next(hints...)
		return nil
	}
	return t.Write(a.env.Stdout)
}
