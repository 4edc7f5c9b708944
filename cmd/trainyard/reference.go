package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// cliReference is the page of all commands.
func cliReference(root *cobra.Command) []byte {
	var out bytes.Buffer
	out.WriteString("# Commands\n\nThis page is made from the code by `make generate`.\n")
	writeCommand(&out, root)

	return out.Bytes()
}

func writeCommand(out *bytes.Buffer, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}

		fmt.Fprintf(out, "\n## %s\n\n%s\n\n```text\n%s\n```\n", c.CommandPath(), sentence(c), strings.TrimSpace(c.UseLine()))

		if c.Example != "" {
			fmt.Fprintf(out, "\nExamples:\n\n```text\n%s\n```\n", strings.TrimRight(c.Example, "\n"))
		}

		var flags []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" {
				flags = append(flags, flagRow(f))
			}
		})

		if len(flags) > 0 {
			out.WriteString("\n| flag | default | meaning |\n| --- | --- | --- |\n" + strings.Join(flags, ""))
		}

		writeCommand(out, c)
	}
}

func sentence(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}

	return c.Short + "."
}

func flagRow(f *pflag.Flag) string {
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}

	standard := f.DefValue
	if standard == "[]" || standard == "false" {
		standard = ""
	}

	if standard != "" {
		standard = "`" + standard + "`"
	}

	return fmt.Sprintf("| %s | %s | %s |\n", name, standard, strings.ReplaceAll(f.Usage, "|", `\|`))
}

// exitCodeReference is the page of the exit codes: the text of "trainyard help exit-codes".
func exitCodeReference(root *cobra.Command) []byte {
	var out bytes.Buffer
	out.WriteString("# Exit codes\n\nThis page is made from the code by `make generate`; " +
		"`trainyard help exit-codes` prints the same.\n")

	for _, c := range root.Commands() {
		if c.Name() == "exit-codes" {
			fmt.Fprintf(&out, "\n```text\n%s\n```\n", strings.TrimSpace(c.Long))
		}
	}

	return out.Bytes()
}

// configReference is the page of all settings.
func configReference() []byte {
	var out bytes.Buffer
	out.WriteString("# Configuration\n\nThis page is made from the code by `make generate`.\n\n" +
		"Every setting can be given as a flag, as an environment variable and as a key of the file named by `--config` " +
		"(or `TRAINYARD_CONFIG`). " +
		"A flag wins over a variable, a variable over the file, the file over the default.\n")

	for _, group := range []struct {
		title    string
		settings []setting
	}{
		{"Server and agent", append([]setting{dataSetting}, logSettings...)},
		{"Server (`trainyard server`, `trainyard up`)", serverSettings},
		{"Agent (`trainyard agent join`, `trainyard agent run`, `trainyard up`)", agentSettings},
	} {
		fmt.Fprintf(
			&out,
			"\n## %s\n\n| flag | variable | key | default | meaning |\n| --- | --- | --- | --- | --- |\n",
			group.title,
		)

		for _, s := range group.settings {
			standard := ""
			if s.standard != "" {
				standard = "`" + s.standard + "`"
			}

			fmt.Fprintf(&out, "| `--%s` | `%s` | `%s` | %s | %s |\n", s.name, s.variable(), s.key(), standard, s.help)
		}
	}

	return out.Bytes()
}

// lifecycle is the page of states, transitions and failures, from the tables that decide them.
func lifecycle() []byte {
	var out bytes.Buffer
	out.WriteString(
		"# Life cycles and failures\n\nThis page is made by `make generate` from the tables that the yard works by. A " +
			"transition that is not drawn cannot happen.\n",
	)

	for _, part := range []struct{ title, intro, body string }{
		{"What people see", "The status word of a job: its state, or for a job that has failed what it failed of.",
			job.StatusTable()},
		{"When a run ends early", "The failure catalogue: what is shown and what happens next.", job.CatalogueTable()},
		{"A job", "", fence(job.Diagram())},
		{"A run", "One attempt of a job; each of its ranks goes through the same states.", fence(job.RunDiagram())},
		{"A node", "", fence(fleet.Diagram())},
		{"A lease", "The claim on a provisioned node.", fence(fleet.LeaseDiagram())},
	} {
		fmt.Fprintf(&out, "\n## %s\n\n", part.title)
		if part.intro != "" {
			out.WriteString(part.intro + "\n\n")
		}

		out.WriteString(strings.TrimSpace(part.body) + "\n")
	}

	return out.Bytes()
}

func fence(diagram string) string {
	return "```mermaid\n" + strings.TrimSpace(diagram) + "\n```"
}
