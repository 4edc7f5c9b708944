package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trainyard/internal/cli"
	"trainyard/test/markdown"
)

// What documents, units and help texts name must exist in the command tree: a renamed flag that stays in a
// README costs every new user a quarter of an hour.

func TestDocumentsNameCommandsThatExist(t *testing.T) {
	t.Parallel()

	root := fullTree()
	checked := 0

	for _, name := range markdownFiles(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		lines, findings := checkDocument(root, name, string(text))
		checked += lines

		for _, finding := range findings {
			t.Error(finding)
		}
	}

	if checked < 50 {
		t.Errorf("found only %d command lines: the test looks in the wrong place", checked)
	}
}

func TestExamplesInHelpTextsExist(t *testing.T) {
	t.Parallel()

	root := fullTree()
	walkCommands(root, func(c *cobra.Command) {
		_, findings := checkDocument(root, c.CommandPath()+" --help", "```\n"+c.Example+"\n```\n")
		for _, finding := range findings {
			t.Error(finding)
		}
	})
}

func TestDeployNamesCommandsAndSettingsThatExist(t *testing.T) {
	t.Parallel()

	root := fullTree()

	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) < 2 {
		t.Fatalf("found the units %q (%v), want those of server and agent", units, err)
	}

	for _, name := range units {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		for _, finding := range checkUnit(root, name, string(text)) {
			t.Error(finding)
		}
	}

	container, err := os.ReadFile("../../deploy/container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}

	for _, finding := range checkVariables("Containerfile", string(container)) {
		t.Error(finding)
	}
}

// fullTree is every command, with those that cobra adds when it runs.
func fullTree() *cobra.Command {
	root := rootCommand(cli.SystemEnv("test"))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()

	return root
}

// walkCommands visits a command and all below it.
func walkCommands(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)

	for _, sub := range c.Commands() {
		walkCommands(sub, visit)
	}
}

// markdownFiles returns the documents whose command lines are checked: all but past releases and decisions.
func markdownFiles(t *testing.T) []string {
	t.Helper()

	names := []string{"../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md"}
	for _, root := range []string{"docs", "deploy", "examples", "sdk"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			if d.IsDir() && d.Name() == "adr" {
				return filepath.SkipDir
			}

			if strings.HasSuffix(name, ".md") {
				names = append(names, name)
			}

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return names
}

var (
	nestedCode = regexp.MustCompile(`\$\(([^()]*)\)`)
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
	// A command ends where the shell ends it, and where a comment begins.
	commandEnd = regexp.MustCompile(`\s#|[;|]|&&|\)|\s[<>]|\s2>`)
	// Text for people is no argument: … stands for what was left out, | and [ ] for a choice.
	callPattern = regexp.MustCompile(`(?:^|[\s(/])trainyard((?:\s+\S+)*)`)
	namePattern = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flagPattern = regexp.MustCompile(`^--([a-z][a-z0-9-]*)(?:[=…].*)?$`)
)

// checkDocument checks every command line in fenced blocks and in code spans that begin with trainyard.
// It returns how many there were, and what is wrong with them.
func checkDocument(root *cobra.Command, name, text string) (int, []string) {
	var findings []string
	checked := 0
	var check func(line int, code string)
	check = func(line int, code string) {
		for _, m := range nestedCode.FindAllStringSubmatch(code, -1) {
			check(line, m[1])
		}

		arguments, ok := call(nestedCode.ReplaceAllString(code, "X"))
		if !ok {
			return
		}

		checked++

		if wrong := checkCall(root, arguments); wrong != "" {
			findings = append(findings, fmt.Sprintf("%s:%d: %s: %s", name, line, strings.TrimSpace(code), wrong))
		}
	}

	for i, line := range markdown.Prose(text) {
		for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
			if strings.HasPrefix(m[1], "trainyard ") {
				check(i+1, m[1])
			}
		}
	}

	for _, b := range markdown.Blocks(text) {
		if !slices.Contains([]string{"", "sh", "bash", "console", "shell"}, b.Info) {
			continue
		}

		for i := 0; i < len(b.Body); i++ {
			line, first := b.Body[i], b.Line+i+1

			for strings.HasSuffix(line, `\`) && i+1 < len(b.Body) {
				i++
				line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(b.Body[i])
			}

			// Output of a program is in blocks too: only what begins like a command is one.
			command := strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			if beginsWithCall(command) {
				check(first, command)
			}
		}
	}

	return checked, findings
}

// beginsWithCall reports whether a line of a block is a call of trainyard, perhaps by path, behind variables, or as
// another user.
func beginsWithCall(line string) bool {
	for word := range strings.FieldsSeq(line) {
		switch {
		case filepath.Base(word) == "trainyard":
			return true
		case strings.Contains(word, "="), strings.HasPrefix(word, "-"):
		case slices.Contains([]string{"sudo", "runuser", "trainyard-agent"}, word):
		default:
			return false
		}
	}

	return false
}

// call returns the arguments of the first call of trainyard in a line.
func call(code string) ([]string, bool) {
	m := callPattern.FindStringSubmatchIndex(code)
	if m == nil {
		return nil, false
	}

	rest := code[m[2]:]
	if end := commandEnd.FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}

	return strings.Fields(rest), true
}

// checkCall says what is wrong with a call, "" if nothing is: a command that does not exist, or a flag that the command
// does not have.
func checkCall(root *cobra.Command, arguments []string) string {
	command := root
	descending, isValue := true, false

	for _, argument := range arguments {
		if argument == "--" {
			return ""
		}

		if m := flagPattern.FindStringSubmatch(argument); m != nil {
			flag := findFlag(command, m[1])
			if flag == nil && m[1] != "help" && m[1] != "version" {
				return fmt.Sprintf("%s has no flag --%s", command.CommandPath(), m[1])
			}

			isValue = flag != nil && flag.NoOptDefVal == "" && !strings.Contains(argument, "=")

			continue
		}

		if isValue {
			isValue = false
			continue
		}

		if !descending || strings.HasPrefix(argument, "-") {
			continue
		}

		sub := subcommand(command, argument)
		switch {
		case sub != nil:
			command = sub
		case command == root && namePattern.MatchString(argument):
			return fmt.Sprintf("there is no command %s", argument)
		default:
			descending = false
		}
	}

	return ""
}

func subcommand(command *cobra.Command, name string) *cobra.Command {
	for _, c := range command.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}

	return nil
}

// findFlag returns a flag of a command or of those above it, nil if there is none.
func findFlag(command *cobra.Command, name string) *pflag.Flag {
	for _, set := range []*pflag.FlagSet{command.Flags(), command.PersistentFlags(), command.InheritedFlags()} {
		if flag := set.Lookup(name); flag != nil {
			return flag
		}
	}

	return nil
}

// checkUnit checks ExecStart of a unit.
func checkUnit(root *cobra.Command, name, text string) []string {
	var findings []string
	started := false

	for line := range strings.SplitSeq(text, "\n") {
		exec, ok := strings.CutPrefix(line, "ExecStart=")
		if !ok {
			continue
		}

		started = true

		arguments, ok := call(exec)
		if !ok {
			findings = append(findings, fmt.Sprintf("%s: %s does not start trainyard", name, line))
			continue
		}

		if len(arguments) == 0 || subcommand(root, arguments[0]) == nil {
			findings = append(findings, fmt.Sprintf("%s: %s starts no command", name, line))
			continue
		}

		if wrong := checkCall(root, arguments); wrong != "" {
			findings = append(findings, fmt.Sprintf("%s: %s: %s", name, line, wrong))
		}
	}

	if !started {
		findings = append(findings, name+": there is no ExecStart")
	}

	return append(findings, checkVariables(name, text)...)
}

var variablePattern = regexp.MustCompile(`\bTRAINYARD_[A-Z_]+`)

// checkVariables flags variables that are no setting.
func checkVariables(name, text string) []string {
	known := []string{"TRAINYARD_CONFIG"}
	for _, s := range slices.Concat([]setting{dataSetting}, logSettings, serverSettings, agentSettings) {
		known = append(known, s.variable())
	}

	var findings []string
	for _, variable := range variablePattern.FindAllString(text, -1) {
		if strings.HasSuffix(variable, "_") { // "TRAINYARD_ variables"
			continue
		}

		if !slices.Contains(known, variable) {
			findings = append(findings, fmt.Sprintf("%s: %s is not a setting", name, variable))
		}
	}

	return findings
}

func TestUnknownCommandsAndFlagsAreFlagged(t *testing.T) {
	t.Parallel()

	root := &cobra.Command{Use: "trainyard"}
	root.PersistentFlags().String("context", "", "")
	submit := &cobra.Command{Use: "submit", Aliases: []string{"sub"}}
	submit.Flags().Bool("dry-run", false, "")
	nodes := &cobra.Command{Use: "nodes"}
	drain := &cobra.Command{Use: "drain"}
	drain.Flags().String("reason", "", "")
	nodes.AddCommand(drain)
	root.AddCommand(submit, nodes)

	tests := []struct{ name, text, want string }{
		{"a command", "`trainyard submit job.yaml --dry-run`", ""},
		{"an alias", "`trainyard sub job.yaml`", ""},
		{"a subcommand's flag", "`trainyard nodes drain n1 --reason=disk`", ""},
		{"a flag of all commands", "`trainyard --context lab nodes`", ""},
		{"no arguments", "`trainyard submit`", ""},
		{"a call within a call", "`trainyard submit $(trainyard nodes drain --reason a)`", ""},
		{
			"an unknown flag within a call",
			"`trainyard submit $(trainyard nodes --dry-run)`",
			"trainyard nodes has no flag --dry-run",
		},
		{"what a job gets", "`trainyard submit -- python --epochs 3`", ""},
		{"behind a comment", "```\ntrainyard nodes  # --all shows more\n```", ""},
		{"behind a pipe", "```\ntrainyard nodes | grep --count a\n```", ""},
		{"output", "```\nThe trainyard is up --really\n```", ""},
		{"another language", "```yaml\ntrainyard: gone --x\n```", ""},
		{"prose", "trainyard gone --x", ""},
		{"an unknown command", "a\n`trainyard gone`", "x.md:2: trainyard gone: there is no command gone"},
		{"an unknown flag", "`trainyard submit --fast`", "trainyard submit has no flag --fast"},
		{"a flag of another command", "`trainyard nodes --dry-run`", "trainyard nodes has no flag --dry-run"},
		{"in a block", "```sh\n$ trainyard gone\n```", "there is no command gone"},
		{"by path and behind a variable", "```\nA=1 build/trainyard submit --fast\n```", "has no flag --fast"},
		{"on a second line", "```\ntrainyard submit \\\n  --fast\n```", "has no flag --fast"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			_, findings := checkDocument(root, "x.md", tt.text)
			text := strings.Join(findings, "\n")
			if tt.want == "" && text != "" || !strings.Contains(text, tt.want) {
				t.Errorf("findings %q, want %q", text, tt.want)
			}
		})
	}
}

func TestBadUnitsAreFlagged(t *testing.T) {
	t.Parallel()

	root := fullTree()

	tests := []struct{ name, text, want string }{
		{"good", "ExecStart=/usr/local/bin/trainyard server --data /x", ""},
		{"a variable", "Environment=TRAINYARD_LISTEN=:1\nExecStart=/bin/trainyard agent run", ""},
		{"an unknown flag", "ExecStart=/usr/local/bin/trainyard server --datas /x", "has no flag --datas"},
		{"an unknown command", "ExecStart=/usr/local/bin/trainyard serve --data /x", "starts no command"},
		{"another program", "ExecStart=/bin/sh", "does not start trainyard"},
		{"nothing", "[Service]", "there is no ExecStart"},
		{
			"an unknown variable",
			"Environment=TRAINYARD_PORT=1\nExecStart=/bin/trainyard server",
			"TRAINYARD_PORT is not a setting",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			text := strings.Join(checkUnit(root, "a.service", tt.text), "\n")
			if tt.want == "" && text != "" || !strings.Contains(text, tt.want) {
				t.Errorf("findings %q, want %q", text, tt.want)
			}
		})
	}
}
