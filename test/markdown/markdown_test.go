package markdown_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/test/markdown"
)

func TestBlocksAndProse(t *testing.T) {
	t.Parallel()

	const text = "# Title\n\nSay:\n\n```console title\n$ a\n\n```sh is text here\n```\n" +
		"  ```\n  b\n  ```\nend\n```yaml\nopen"

	blocks := markdown.Blocks(text)
	want := []markdown.Block{
		{Line: 5, Info: "console title", Body: []string{"$ a", "", "```sh is text here"}, Before: "Say:"},
		{Line: 10, Body: []string{"  b"}},
		{Line: 14, Info: "yaml", Body: []string{"open"}, Before: "end", Open: true},
	}

	if diff := cmp.Diff(want, blocks); diff != "" {
		t.Errorf("blocks (-want +got)\n%s", diff)
	}

	if got := blocks[0].Language() + "," + blocks[1].Language(); got != "console," {
		t.Errorf("languages %s", got)
	}

	prose := strings.Join(markdown.Prose(text), "|")
	if want := "# Title||Say:||||||||||end||"; prose != want {
		t.Errorf("prose %q, want %q", prose, want)
	}
}

func TestADocumentWithoutBlocksIsProse(t *testing.T) {
	t.Parallel()

	if got := markdown.Blocks("a\n`b`\n"); got != nil {
		t.Errorf("blocks %v", got)
	}

	if diff := cmp.Diff([]string{"a", "`b`", ""}, markdown.Prose("a\n`b`\n")); diff != "" {
		t.Errorf("prose (-want +got)\n%s", diff)
	}
}
