package place_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/place"
)

// tuned is a policy with parameters.
type tuned struct {
	ahead time.Duration
	share float64
	most  int
	value string
	how   string
}

func (tuned) Name() string                  { return "tuned" }
func (tuned) Revises() bool                 { return false }
func (tuned) Plan(_ *place.View) place.Plan { return place.Plan{} }

func registry() place.Registry {
	return place.Registry{
		place.Plain("plain", "does nothing", func() place.Policy { return tuned{} }),
		{Name: "tuned", Rule: "does nothing, as it is told", New: func(s *place.Settings) (place.Policy, error) {
			return tuned{
				ahead: s.Time("ahead", 2*time.Minute, "how far it looks"),
				share: s.Number("share", 0.5, 0, 1, "how much"),
				most:  s.Count("most", 10, 1, 100, "how many"),
				value: s.Text("value", "throughput", "what counts"),
				how:   s.Choice("how", "which way", "fast", "slow"),
			}, nil
		}},
	}
}

func TestAPolicyIsMadeByNameAndParameters(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]tuned{
		"tuned":                   {2 * time.Minute, 0.5, 10, "throughput", "fast"},
		"tuned:ahead=90s:share=1": {90 * time.Second, 1, 10, "throughput", "fast"},
		`tuned:value="a ? b : c"`: {2 * time.Minute, 0.5, 10, "a ? b : c", "fast"},
		"tuned:how=slow:most=3":   {2 * time.Minute, 0.5, 3, "throughput", "slow"},
		`tuned:value="min(a,b)"`:  {2 * time.Minute, 0.5, 10, "min(a,b)", "fast"},
	} {
		make, err := registry().Make(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}

		if got := make(); got != want {
			t.Errorf("%s made %+v, want %+v", text, got, want)
		}
	}
}

func TestAPolicyThatCannotBeMadeSaysWhy(t *testing.T) {
	t.Parallel()

	for text, says := range map[string]string{
		"nothing":             `unknown policy "nothing"`,
		"tuned:ahead":         "invalid parameter",
		"tuned:ahead=long":    "a duration",
		"tuned:share=2":       "a number between 0 and 1",
		"tuned:share=NaN":     "a number between 0 and 1",
		"tuned:most=0":        "between 1 and 100",
		"tuned:how=sideways":  "one of fast, slow",
		"tuned:colour=red":    `no parameter "colour"`,
		"tuned:most=1:most=2": "each name once",
		"plain:most=1":        `no parameter "most"`,
		`tuned:value="a`:      "unclosed quote",
	} {
		if _, err := registry().Make(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

func TestSeveralPoliciesAndTheirParameters(t *testing.T) {
	t.Parallel()
	names, makers, err := registry().List(`plain,tuned:value="min(a,b)"`)
	if err != nil || !slices.Equal(names, []string{"plain", `tuned:value="min(a,b)"`}) || len(makers) != 2 {
		t.Errorf("the list is %q with %d makers, %v", names, len(makers), err)
	}

	params, err := registry().Params("tuned")
	if err != nil || len(params) != 5 ||
		params[0] != (place.Param{Name: "ahead", Standard: "2m", Help: "how far it looks"}) {
		t.Errorf("the parameters are %+v, %v", params, err)
	}
}
