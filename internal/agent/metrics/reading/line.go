package reading

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
)

// Line is one line of the files in which a run is told about: by our SDK, and by the agent for
// what was sent to it. Every field may be missing.
type Line struct {
	Step    *Float           `json:"step,omitempty"`
	At      float64          `json:"at,omitempty"`
	Metrics map[string]Float `json:"metrics,omitempty"`
	Done    *Float           `json:"done,omitempty"`
	Total   *Float           `json:"total,omitempty"`
	// Remaining is the program's own estimate of the rest, in seconds.
	Remaining *Float `json:"remaining,omitempty"`
	Note      string `json:"note,omitempty"`
	Text      string `json:"text,omitempty"`
	Source    string `json:"source,omitempty"` // of what was sent: one of the Via
}

// How something was sent to the agent.
const (
	ViaURL    = "url"
	ViaStatus = "status"
	ViaMLflow = "mlflow"
)

// Float is a number that may be NaN or infinite, which JSON has only as texts.
type Float float64

// MarshalJSON writes what is no number as a text.
func (n Float) MarshalJSON() ([]byte, error) {
	if data, err := json.Marshal(float64(n)); err == nil {
		return data, nil
	}

	switch v := float64(n); {
	case v > 0:
		return []byte(`"Infinity"`), nil
	case v < 0:
		return []byte(`"-Infinity"`), nil
	}

	return []byte(`"NaN"`), nil
}

// UnmarshalJSON reads a number or a text that stands for one. Something else is an error, but null, which many
// write for what is no number.
func (n *Float) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = Float(math.NaN())
		return nil
	}

	v, ok := Parse(string(bytes.Trim(data, `"`)))
	if !ok {
		return json.Unmarshal(data, (*float64)(n))
	}

	*n = Float(v)

	return nil
}

// kindsOfNotes are the notes that are passed on.
var kindsOfNotes = map[string]bool{"checkpoint_saved": true, "checkpoint_restored": true, "target_reached": true}

// Reading is what the line says.
func (l *Line) Reading() Reading {
	r := Reading{
		At: l.At, Step: optional(l.Step), Done: optional(l.Done), Total: optional(l.Total),
		Remaining: optional(l.Remaining),
	}
	for _, name := range slices.Sorted(maps.Keys(l.Metrics)) {
		r.Add(name, float64(l.Metrics[name]))
	}

	if kindsOfNotes[l.Note] {
		r.Note = Note{Kind: l.Note, Text: l.Text}
	}

	return r
}

func optional(n *Float) Number {
	if n == nil {
		return Number{}
	}

	return Known(float64(*n))
}
