package table

import (
	"math"
	"strconv"
	"strings"

	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// Amount writes a number of any size in four digits or less: "1.235M", "130M", "0.5".
func Amount(f float64) string {
	letter := ""
	for _, u := range []struct {
		letter string
		size   float64
	}{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"K", 1e3}} {
		if math.Abs(f) >= u.size {
			letter, f = u.letter, f/u.size
			break
		}
	}

	if math.Abs(f) >= 1000 {
		return strconv.FormatFloat(f, 'f', 0, 64) + letter
	}

	return strconv.FormatFloat(f, 'g', 4, 64) + letter
}

// fakeLabel marks GPUs that are declared and do not exist.
const fakeLabel = " (fake)"

// Model writes a GPU's whole name, labelled once if the GPU is fake.
func Model(name string, fake bool) string {
	name = strings.TrimSuffix(name, fakeLabel)
	if fake {
		name += fakeLabel
	}

	return name
}

// GPUs writes GPUs of one kind: "8× A100 80GB". Fake ones are labelled.
func GPUs(n int, model string, memory job.Bytes, fake bool) string {
	text := humanize.GPUs(n, Model(model, false), memory)
	if fake {
		text += fakeLabel
	}

	return text
}
