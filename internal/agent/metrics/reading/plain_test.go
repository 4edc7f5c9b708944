package reading

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJSONAsPythonWritesIt(t *testing.T) {
	t.Parallel()

	for in, want := range map[string]string{
		`{"a": NaN, "b": [Infinity, -Infinity, -1]}`: `{"a": "NaN", "b": ["Infinity", "-Infinity", -1]}`,
		`{"NaN": "a NaN \" NaN", "b": NaN}`:          `{"NaN": "a NaN \" NaN", "b": "NaN"}`,
		`{"a": 1}`:                                   `{"a": 1}`,
		``:                                           ``,
		`NaN`:                                        `"NaN"`,
	} {
		if diff := cmp.Diff(want, string(Quoted([]byte(in)))); diff != "" {
			t.Error(diff)
		}
	}

	var to map[string]json.RawMessage
	if err := Unmarshal([]byte(`{"a": Nan}`), &to); err == nil {
		t.Error("what is no JSON is taken")
	}
}

func TestNullIsNoNumber(t *testing.T) {
	t.Parallel()
	var l Line
	if err := json.Unmarshal([]byte(`{"step": null, "metrics": {"loss": null}}`), &l); err != nil {
		t.Fatal(err)
	}

	if v := l.Metrics["loss"]; l.Step != nil || v == v {
		t.Errorf("read as %+v", l)
	}
}
