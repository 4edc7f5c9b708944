package reading

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestNumbersAsProgramsPrintThem(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]float64{
		"0.5": 0.5, "-3": -3, "+2": 2, ".5": 0.5, "1e-3": 1e-3, "6.9e+00": 6.9, "85%": 85, "inf": math.Inf(1), "-Infinity": math.Inf(-1), "Inf": math.Inf(1),
	} {
		if got, ok := Parse(text); !ok || got != want {
			t.Errorf("%q is %g, %v", text, got, ok)
		}
	}

	if got, ok := Parse("NaN"); !ok || !math.IsNaN(got) {
		t.Errorf("NaN is %g, %v", got, ok)
	}

	for _, text := range []string{"", "x", "1.2.3", "0x10", "1e999", "1_000", "20ms", "--1", "info", "nano", "%", "-", strings.Repeat("1", 50)} {
		if got, ok := Parse(text); ok {
			t.Errorf("%q is %g", text, got)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{
		" val_loss ": "val_loss", "train/loss": "train/loss", "Verlust (ü)": "Verlust (ü)", "": "", "  ": "", "a\nb": "", "\xff": "", strings.Repeat("x", 200): "",
	} {
		if got := Name(name); got != want {
			t.Errorf("%q becomes %q", name, got)
		}
	}
}

func TestALineComesBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	step := Float(10)
	in := Line{
		Step:    &step,
		At:      1700000000.5,
		Metrics: map[string]Float{"loss": 0.5, "a": Float(math.NaN()), "b": Float(math.Inf(1)), "c": Float(math.Inf(-1))},
	}

	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}

	want := `{"step":10,"at":1700000000.5,"metrics":{"a":"NaN","b":"Infinity","c":"-Infinity","loss":0.5}}`
	if string(text) != want {
		t.Errorf("written as %s", text)
	}

	var out Line
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}

	r := out.Reading()
	if len(r.Values) != 4 || !math.IsNaN(r.Values[0].Value) || !math.IsInf(r.Values[1].Value, 1) ||
		!math.IsInf(r.Values[2].Value, -1) ||
		r.Values[3].Value != 0.5 ||
		r.Step != Known(10) {
		t.Errorf("read as %+v", r)
	}

	if err := json.Unmarshal([]byte(`{"step": "ten"}`), &out); err == nil {
		t.Error("a step that is no number is taken")
	}
}

func TestOnlyNotesThatTheYardKnowsArePassedOn(t *testing.T) {
	t.Parallel()

	for _, note := range []string{"checkpoint_saved", "checkpoint_restored", "target_reached"} {
		l := Line{Note: note, Text: "ckpt/5"}
		if r := l.Reading(); r.Note != (Note{note, "ckpt/5"}) || r.Empty() {
			t.Errorf("%s: %+v", note, r)
		}
	}

	l := Line{Note: "hello"}
	if r := l.Reading(); !r.Empty() {
		t.Errorf("an unknown note: %+v", r)
	}
}
