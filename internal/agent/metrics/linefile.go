package metrics

import (
	"bytes"
	"encoding/json"
	"path/filepath"

	"trainyard/internal/agent/metrics/reading"
)

// lineFile reads a file of lines in the format of reading.Line: that of the SDK or of the intake.
type lineFile struct {
	tail tail
	sdk  bool
	// Values of earlier status messages, which repeat the last value.
	lastValues map[string]reading.Float
	step       reading.Float
}

var sources = map[string]*origin{
	reading.ViaURL:    {trust: bySent, label: "sent to the agent"},
	reading.ViaStatus: {trust: byStatus, label: "Hugging Face's status messages"},
	reading.ViaMLflow: {trust: bySent, label: "MLflow's client"},
}

var fromSDK = &origin{trust: bySDK, label: "SDK"}

func newLineFile(path string, sdk bool) *lineFile {
	t := &lineFile{sdk: sdk, lastValues: map[string]reading.Float{}}
	if path != "" {
		t.tail = tail{dir: filepath.Dir(path), path: filepath.Base(path)}
	}

	return t
}

// poll reads the lines that are new, and reports whether there are more. An invalid line is
// skipped: the disk may have been full.
func (t *lineFile) poll(g *Gatherer) (more bool, err error) {
	if t.tail.path == "" {
		return false, nil
	}

	for range 4 {
		p, err := t.tail.read(maxRead, g.started)
		if err != nil || p == nil {
			return false, err
		}

		n := wholeLines(p.data)
		for line := range bytes.Lines(p.data[:n]) {
			t.take(g, bytes.TrimSpace(line), p.until)
		}

		if n == 0 && p.rest {
			n = len(p.data) // a line that never ends
		}

		t.tail.used(n)

		if !p.rest {
			return false, nil
		}
	}

	return true, nil
}

// take takes one line.
func (t *lineFile) take(g *Gatherer, line []byte, at float64) {
	var in reading.Line
	if len(line) == 0 || json.Unmarshal(line, &in) != nil {
		return
	}

	from := fromSDK

	if !t.sdk {
		from = sources[in.Source]
		if from == nil {
			return
		}

		if in.Source == reading.ViaStatus {
			t.dropRepeats(&in)
		}
	}

	g.take(from, in.Reading(), at)
}

// dropRepeats leaves in a status message what has changed. Without a step it is of the step before.
func (t *lineFile) dropRepeats(in *reading.Line) {
	for name, v := range in.Metrics {
		if old, ok := t.lastValues[name]; ok && old == v || len(t.lastValues) > 1000 {
			delete(in.Metrics, name)
			continue
		}

		t.lastValues[name] = v
	}

	if in.Step != nil {
		t.step = *in.Step
	} else {
		in.Step = &t.step
	}
}

// wholeLines is how many bytes the lines take that have ended.
func wholeLines(data []byte) int { return bytes.LastIndexByte(data, '\n') + 1 }
