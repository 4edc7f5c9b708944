// Package docs reads the documentation as a script, so that tests can run every command in it.
//
// A page is a session in a folder of its own. A fenced block marked "console" is a transcript: lines that begin with
// "$ " are commands, "> " continues one, and what follows is the output to expect. Where "…" stands, the output may
// have
// anything or nothing; a line that is only "…" stands for any number of lines. A last line "[exit status N]" is the
// expected exit status, else it is 0. A command without output in the page may print what it likes.
//
// Comments direct the session, in the order in which they stand:
//
//	<!-- session: up FLAGS -->       start a yard on this machine for the page, and log in to it
//	<!-- session: server FLAGS -->   start a server without nodes, and log in as its admin
//	<!-- file: NAME -->              the next block is the content of this file
//	<!-- background -->              the next block's commands keep running until the page is over; output that the
//	                                 page shows is awaited
//	<!-- setup: COMMAND -->          run a command the reader does not see
//	<!-- not run: REASON -->         the next block cannot be run by a test, and why
package docs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"trainyard/test/markdown"
)

// Page is one page of the documentation as a script.
type Page struct {
	Steps   []Step
	Skipped []Skip
}

// Step is one thing to do: start a yard, write a file, or run a command.
type Step struct {
	Line       int
	Session    string // "up FLAGS" or "server FLAGS": the yard to start
	File       string // to write, or "" to run Command
	Content    string
	Command    string
	Background bool
	Hidden     bool     // a set-up command that the reader does not see
	Output     []string // expected lines; nil if the page does not show any
	Status     int
}

// Skip is a block that is not run, with the reason that the page gives.
type Skip struct {
	Line   int
	Reason string
}

var directive = regexp.MustCompile(`^<!-- (session|file|setup|background|not run)(?:: (.*?))? -->$`)

// executable are the languages of blocks that a reader would type into a shell.
var executable = map[string]bool{"console": true, "sh": true, "bash": true, "shell": true, "": true}

// Parse reads a page. Every block that a reader would type must be a console transcript, the content of a file, or say
// why it is not run.
func Parse(text string) (*Page, error) {
	page := &Page{}
	lines := markdown.Prose(text)
	pending := map[string]string{} // directives for the next block
	done := 0                      // lines that were read

	for _, b := range markdown.Blocks(text) {
		page.directives(lines[:b.Line], done, pending)

		if b.Open {
			return nil, fmt.Errorf("line %d: the block does not end", b.Line)
		}

		if err := page.block(b.Line, b.Language(), b.Body, pending); err != nil {
			return nil, err
		}

		clear(pending)
		done = b.End()
	}

	page.directives(lines, done, pending)

	for name := range pending {
		return nil, fmt.Errorf("no block follows the comment %q", name)
	}

	return page, nil
}

// directives reads the comments of the lines from one on: it adds what they ask for, and enters those about the next
// block.
func (p *Page) directives(lines []string, from int, pending map[string]string) {
	for i := from; i < len(lines); i++ {
		m := directive.FindStringSubmatch(strings.TrimSpace(lines[i]))
		if m == nil {
			continue
		}

		switch m[1] {
		case "session":
			p.Steps = append(p.Steps, Step{Line: i + 1, Session: m[2]})
		case "setup":
			p.Steps = append(p.Steps, Step{Line: i + 1, Command: m[2], Hidden: true})
		default:
			pending[m[1]] = m[2]
		}
	}
}

// block adds what a fenced block asks for. The line is that of its opening fence.
func (p *Page) block(line int, language string, body []string, pending map[string]string) error {
	if name, ok := pending["file"]; ok {
		p.Steps = append(p.Steps, Step{Line: line, File: name, Content: strings.Join(body, "\n") + "\n"})
		return nil
	}

	if reason, ok := pending["not run"]; ok {
		if strings.TrimSpace(reason) == "" {
			return fmt.Errorf("line %d: a block that is not run needs a reason", line)
		}

		p.Skipped = append(p.Skipped, Skip{Line: line, Reason: reason})

		return nil
	}

	if !executable[language] {
		return nil
	}

	if language != "console" {
		return fmt.Errorf(
			"line %d: mark the block as console, as the content of a file, as text, or say why it is not run",
			line,
		)
	}

	_, background := pending["background"]

	return p.transcript(line, body, background)
}

var exitStatus = regexp.MustCompile(`^\[exit status (\d+)\]$`)

// transcript adds the commands of a console block.
func (p *Page) transcript(line int, body []string, background bool) error {
	var step *Step
	flush := func() {
		if step == nil {
			return
		}

		for len(step.Output) > 0 && strings.TrimSpace(step.Output[len(step.Output)-1]) == "" {
			step.Output = step.Output[:len(step.Output)-1]
		}

		if len(step.Output) == 0 {
			step.Output = nil // blank lines between commands are not output
		}

		p.Steps = append(p.Steps, *step)
	}

	for i, text := range body {
		switch {
		case strings.HasPrefix(text, "$ "):
			flush()
			step = &Step{Line: line + i + 1, Command: strings.TrimPrefix(text, "$ "), Background: background}
		case step == nil:
			return fmt.Errorf("line %d: a transcript begins with a command: $ …", line+i+1)
		case strings.HasPrefix(text, "> ") && step.Output == nil:
			step.Command += "\n" + strings.TrimPrefix(text, "> ")
		case exitStatus.MatchString(text):
			step.Status, _ = strconv.Atoi(exitStatus.FindStringSubmatch(text)[1])
		default:
			step.Output = append(step.Output, text)
		}
	}

	if step == nil {
		return fmt.Errorf("line %d: the transcript has no command", line)
	}

	flush()

	return nil
}

// Matches reports whether an output is what the page shows. Runs of white space count as one space, because columns
// move with the length of what stands in them.
func Matches(expected []string, output string) bool {
	var pattern strings.Builder
	pattern.WriteString(`^`)

	for _, line := range expected {
		line = strings.Join(strings.Fields(line), " ")
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}

		rest := ""
		if begin, found := strings.CutSuffix(line, " …"); found {
			line, rest = begin, `(?: .*)?`
		}

		quoted := regexp.QuoteMeta(line)
		pattern.WriteString(strings.ReplaceAll(quoted, "…", `.*`) + rest + `\n`)
	}

	pattern.WriteString(`$`)

	var actual strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(output, "\n"), "\n") {
		actual.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}

	matched, err := regexp.MatchString(pattern.String(), actual.String())

	return err == nil && matched
}
