package information

import (
	"bytes"
	"strings"
	"testing"
)

// sound is a declaration with nothing wrong.
func sound() Comparison {
	return Comparison{Name: "bench-x", Sides: []Side{
		{Name: "ours", Role: Headline, Knowledge: Knowledge{RunTimes: Learned}, Objective: "cost"},
		{Name: "theirs", Role: Opponent, Knowledge: Knowledge{RunTimes: Forecast, Speeds: Declared}, Objective: "cost"},
		{Name: "ours, declared", Knowledge: Knowledge{RunTimes: Declared, Speeds: Declared}, Objective: "cost"},
	}}
}

func TestADeclarationThatWouldMisleadIsRefused(t *testing.T) {
	t.Parallel()

	c := sound()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}

	for want, change := range map[string]func(*Comparison){
		"has no name":                            func(c *Comparison) { c.Name = "" },
		"needs a headline and an opponent":       func(c *Comparison) { c.Sides[1].Role = Reference },
		"knows more than its opponent theirs":    func(c *Comparison) { c.Sides[0].Knowledge.Work = Learned },
		"ours has no objective":                  func(c *Comparison) { c.Sides[0].Objective = "" },
		"have different objectives":              func(c *Comparison) { c.Sides[0].Objective = "mean completion" },
		"declared twice":                         func(c *Comparison) { c.Sides[2].Name = "ours" },
		"a side has no name":                     func(c *Comparison) { c.Sides[2].Name = "" },
		"knows more than its opponent theirs: f": func(c *Comparison) { c.Sides[0].Knowledge.Arrivals = Oracle },
	} {
		c := sound()
		change(&c)

		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}

	c = sound()
	c.Sides[0].Objective, c.Differs = "mean completion", "theirs has no other"

	if err := c.Check(); err != nil {
		t.Errorf("a reason is given, and still: %v", err)
	}
}

func TestRowsAreLabelledByWhatTheyKnow(t *testing.T) {
	t.Parallel()

	c := sound()
	var text bytes.Buffer

	if err := Print(&text, []Comparison{c}); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{
		"headline; knows less: run times, speeds", "knows more: run times", "What each side knows (bench-x)",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &text)
		}
	}

	want := "| ours | none | learned | none | none | cost | this run | headline; knows less: run times, speeds |\n"
	if !strings.Contains(c.Markdown(), want) {
		t.Errorf("%q is missing in\n%s", want, c.Markdown())
	}
}

func TestAPageWithoutTheTableFails(t *testing.T) {
	t.Parallel()

	c := sound()
	const begin, end = "<!-- information: bench-x -->\n", "<!-- end of information -->"
	right := "# Page\n" + begin + "\n" + c.Markdown() + "\n" + end + "\nmore\n"

	for name, page := range map[string]struct {
		text, want string
		list       []Comparison
	}{
		"right":            {right, "", []Comparison{c}},
		"empty":            {"# Page\n" + begin + end + "\nmore\n", "", []Comparison{c}},
		"an old table":     {"# Page\n" + begin + "\n| side |\n\n" + end + "\nmore\n", "", []Comparison{c}},
		"no table":         {"# Page\n", "lacks the table of bench-x", []Comparison{c}},
		"no end":           {begin, "has no end", []Comparison{c}},
		"nothing declared": {"# Page\n", "no comparison is declared", nil},
		"unsound":          {"# Page\n", "needs a headline", []Comparison{{Name: "bench-x"}}},
	} {
		got, err := Page(page.text, page.list)

		switch {
		case page.want == "" && (err != nil || got != right):
			t.Errorf("%s: %v, %q", name, err, got)
		case page.want != "" && (err == nil || !strings.Contains(err.Error(), page.want)):
			t.Errorf("%s: error %v, want %q", name, err, page.want)
		}
	}
}
