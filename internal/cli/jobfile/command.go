package jobfile

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Command is a job that is given by flags instead of a file. Empty fields are left out.
type Command struct {
	GPUs, GPU, CPUs, Memory, Nodes            string
	Workdir, Image, Setup, MaxDuration, Place string

	// Idle is for a job that a person works in: how long it may be idle.
	Idle string
}

// File writes the job file that the flags stand for. Numbers and units are
// written as they were given: what is wrong with them is for spec to say.
func (r Command) File(command string) ([]byte, error) {
	resources := mapping(
		"gpus",
		scalar(r.GPUs),
		"gpu",
		words(r.GPU),
		"cpus",
		scalar(r.CPUs),
		"memory",
		scalar(r.Memory),
		"nodes",
		scalar(r.Nodes),
	)

	if len(resources.Content) == 0 {
		resources = nil
	}

	var interactive *yaml.Node
	if r.Idle != "" {
		interactive = mapping("idle", scalar(r.Idle))
	}

	root := mapping("workdir", quoted(r.Workdir), "image", quoted(r.Image), "setup", quoted(r.Setup),
		"run", quoted(command), "resources", resources, "place", scalar(r.Place), "max_duration", scalar(r.MaxDuration),
		"interactive", interactive)
	out, err := yaml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("write job file: %w", err)
	}

	return out, nil
}

// mapping makes a YAML mapping of keys and values, leaving out values that are nil.
func mapping(keysAndValues ...any) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		key, isText := keysAndValues[i].(string)
		value, isNode := keysAndValues[i+1].(*yaml.Node)
		if isText && isNode && value != nil {
			m.Content = append(m.Content, quoted(key), value)
		}
	}

	return m
}

// scalar is a value of whatever type it looks like; nil for "".
func scalar(text string) *yaml.Node {
	if text == "" {
		return nil
	}

	return &yaml.Node{Kind: yaml.ScalarNode, Value: text}
}

// quoted is a text whatever it looks like; nil for "".
func quoted(text string) *yaml.Node {
	if text == "" {
		return nil
	}

	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// words is a list of texts that were given with commas between them.
func words(text string) *yaml.Node {
	if text == "" {
		return nil
	}

	list := &yaml.Node{Kind: yaml.SequenceNode}
	for word := range strings.SplitSeq(text, ",") {
		list.Content = append(list.Content, quoted(strings.TrimSpace(word)))
	}

	return list
}

// CommandLine makes a line for the shell that runs exactly these words. A
// single word is a line already.
func CommandLine(args []string) string {
	if len(args) == 1 {
		return args[0]
	}

	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = shellQuote(arg)
	}

	return strings.Join(quoted, " ")
}

// shellQuote writes a word so that a POSIX shell reads it as it is.
func shellQuote(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("%+,-./:=@_", c)
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}

	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
