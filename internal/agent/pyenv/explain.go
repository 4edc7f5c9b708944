package pyenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mark begins lines that the script itself prints.
const mark = "trainyard: "

// Progress says how far an environment is, given the end of what its tool has printed and how many packages are there.
func Progress(output string, installed int) string {
	if total := packages(output); total > 0 && installed > 0 {
		return fmt.Sprintf("installing %d of %d packages", min(installed, total), total)
	}

	return strings.Join(lastLines(output, 1), "")
}

// packages returns how many packages the tool is going to install, 0 if it has not said so yet.
func packages(output string) int {
	if _, list, found := cutLast(output, "Installing collected packages: "); found { // pip
		return strings.Count(firstLine(list), ",") + 1
	}

	if _, rest, found := cutLast(output, "Resolved "); found { // uv
		number, _, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(number)

		return n
	}

	return 0
}

// quotedLines is how many lines of output an explanation quotes.
const quotedLines = 3

// Explain says why an environment could not be made, given the end of what its tool has printed: in one sentence where
// that is understood, and in the tool's own last lines.
func Explain(output string) string {
	sentence := cause(output)
	if lines := lastLines(output, quotedLines); len(lines) > 0 {
		if sentence != "" {
			sentence += "; "
		}

		sentence += "last lines of output: " + strings.Join(lines, " / ")
	}

	return sentence
}

// cause finds out what was missing, "" if that is not understood.
func cause(output string) string {
	if _, rest, found := cutLast(output, "No interpreter found for "); found {
		wanted, _, _ := strings.Cut(firstLine(rest), " in ")
		_, have, _ := cutLast(output, mark+"versions of Python here:")
		versions := strings.Fields(firstLine(have))

		if len(versions) == 0 {
			versions = []string{"none"}
		}

		return wanted + " is not available here, and uv could not fetch it; there are: " + strings.Join(versions, ", ")
	}

	for line := range strings.SplitSeq(output, "\n") {
		if sentence, own := strings.CutPrefix(line, mark); own && !strings.HasPrefix(sentence, "versions of Python here") {
			return sentence
		}
	}

	for _, tool := range []func(string) string{causeOfPip, causeOfUV, causeOfConda} {
		if sentence := tool(output); sentence != "" {
			return sentence
		}
	}

	return ""
}

// maxVersions is how many versions of a package are named, the last ones, which are the newest.
const maxVersions = 5

func causeOfPip(output string) string {
	_, rest, found := cutLast(output, "Could not find a version that satisfies the requirement ")
	if !found {
		return ""
	}

	required, versions, _ := strings.Cut(firstLine(rest), " (from versions: ")
	versions = strings.TrimSuffix(strings.TrimSpace(versions), ")")

	if versions == "" || versions == "none" {
		return notFound(required)
	}

	all := strings.Split(versions, ", ")
	if len(all) > maxVersions {
		all = append([]string{"…"}, all[len(all)-maxVersions:]...)
	}

	return "no version fits " + required + "; there are " + strings.Join(all, ", ")
}

func causeOfUV(output string) string {
	if before, _, found := cutLast(output, " was not found in the package registry"); found {
		return notFound(lastWord(before))
	}

	if before, _, found := cutLast(output, " was not found in the provided package locations"); found { // without an index
		return notFound(lastWord(before))
	}

	if _, rest, found := cutLast(output, "there is no version of "); found {
		required, _, _ := strings.Cut(firstLine(rest), " ")
		return "no version fits " + required
	}

	return ""
}

func causeOfConda(output string) string {
	for _, title := range []string{"PackagesNotFoundError", "ResolvePackageNotFound"} {
		_, rest, found := cutLast(output, title)
		if !found {
			continue
		}

		var names []string
		for line := range strings.SplitSeq(rest, "\n") {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok && !strings.Contains(name, "://") {
				names = append(names, name)
			}
		}

		if len(names) > 0 {
			return notFound(strings.Join(names, ", "))
		}
	}

	if _, rest, found := cutLast(output, "nothing provides requested "); found { // mamba
		return notFound(firstLine(rest))
	}

	if before, _, found := cutLast(output, " does not exist (perhaps a typo or a missing channel)"); found { // micromamba
		line := before[strings.LastIndexByte(before, '\n')+1:]
		name, _, _ := strings.Cut(strings.TrimLeft(line, " │├└─"), " ")

		return notFound(name)
	}

	return ""
}

func notFound(what string) string { return "package " + what + " was not found" }

// cutLast cuts a text at the last appearance of another.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}

	return s[:i], s[i+len(sep):], true
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

func lastWord(s string) string {
	words := strings.Fields(s)
	if len(words) == 0 {
		return ""
	}

	return words[len(words)-1]
}

// lastLines returns up to n lines of the end of an output that are not empty and not of the script itself.
func lastLines(output string, n int) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(output, "\r", "\n"), "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, mark) {
			lines = append(lines, line)
		}
	}

	return slices.Clone(lines[max(len(lines)-n, 0):])
}
