package provision

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// entry is a provider or a type while it is read.
type entry struct {
	offer        fleet.Offer
	hourly, spot job.Money
}

// field is one key of the price file.
type field struct {
	name    string
	example string
	also    []string // what other tools call it
	must    bool
	read    func(value)
	list    []field // the keys of its entries, of a list of mappings
	late    bool    // is read after its neighbours
}

// providerFields are the keys of a provider.
func providerFields() []field {
	own := []field{
		{name: "provider", example: "aws", must: true, also: []string{"cloud", "name"},
			read: text(func(e *entry) *string { return &e.offer.Provider }, badProvider)},
		{
			name:    "types",
			example: "[{type: g5.xlarge, cpus: 4, memory: 16GB, hourly: $1.006}]",
			must:    true,
			late:    true,
			list:    typeFields(),
			also:    []string{"instances", "offers", "flavors"},
		},
	}

	return append(own, sharedFields()...)
}

// typeFields are the keys of a type.
func typeFields() []field {
	own := []field{
		{name: "type", example: "g5.xlarge", must: true, also: []string{"instance_type", "instance", "flavor", "name"},
			read: text(func(e *entry) *string { return &e.offer.Type }, badPart)},
		{name: "gpu", example: "A10G", also: []string{"accelerator", "accelerator_name", "gpu_type", "model"},
			read: text(func(e *entry) *string { return &e.offer.GPU }, badGPU)},
		{name: "gpus", example: "8", also: []string{"gpu_count", "accelerator_count", "count"},
			read: whole(func(e *entry) *int { return &e.offer.GPUs }, fleet.MaxGPUs)},
		{name: "gpu_memory", example: "24GB", also: []string{"vram"},
			read: unit(func(e *entry) *job.Bytes { return &e.offer.GPUMemory }, job.ParseBytes, 1<<20, 1<<45)},
		{name: "tflops", example: "70",
			read: number(func(e *entry) *float64 { return &e.offer.TFLOPS }, 1e6)},
		{name: "cpus", example: "4", must: true, also: []string{"vcpus", "cpu"},
			read: unit(func(e *entry) *job.CPUs { return &e.offer.CPUs }, job.ParseCPUs, 1, 1_000_000*1000)},
		{name: "memory", example: "16GB", must: true, also: []string{"mem", "ram", "memory_gib"},
			read: unit(func(e *entry) *job.Bytes { return &e.offer.Memory }, job.ParseBytes, 1<<20, 1<<50)},
		{name: "hourly", example: "$1.006", also: []string{"price", "on_demand", "cost"},
			read: unit(func(e *entry) *job.Money { return &e.hourly }, job.ParseMoney, 0, maxHourly)},
		{name: "spot", example: "$0.43", also: []string{"spot_price", "preemptible"},
			read: unit(func(e *entry) *job.Money { return &e.spot }, job.ParseMoney, 0, maxHourly)},
	}

	return append(own, sharedFields()...)
}

// maxHourly is more than any node costs: a million an hour.
const maxHourly = job.Money(1e12)

// sharedFields may stand beside a provider, for all its types, or in a type.
func sharedFields() []field {
	const year = 365 * 24 * time.Hour
	return []field{
		{name: "region", example: "us-east-1", read: text(func(e *entry) *string { return &e.offer.Region }, badPart)},
		{
			name:    "zone",
			example: "use1-az1",
			also:    []string{"availability_zone"},
			read:    text(func(e *entry) *string { return &e.offer.Zone }, badPart),
		},
		{
			name:    "boot",
			example: "4m",
			also:    []string{"startup", "provision"},
			read:    length(func(e *entry) *job.Duration { return &e.offer.Boot }, 24*time.Hour),
		},
		{
			name:    "billing_increment",
			example: "1h",
			also:    []string{"billing", "granularity"},
			read:    length(func(e *entry) *job.Duration { return &e.offer.BillingIncrement }, year),
		},
		{
			name:    "min_billing",
			example: "1m",
			also:    []string{"minimum", "min"},
			read:    length(func(e *entry) *job.Duration { return &e.offer.MinBilling }, year),
		},
		{
			name:    "loss_rate",
			example: "0.03",
			also:    []string{"interruptions", "losses"},
			read:    number(func(e *entry) *float64 { return &e.offer.LossRate }, time.Hour.Seconds()),
		},
		{
			name:    "max_nodes",
			example: "8",
			also:    []string{"max", "most", "limit", "quota"},
			read:    whole(func(e *entry) *int { return &e.offer.MaxNodes }, 1_000_000),
		},
		{name: "fake", example: "true", read: flag(func(e *entry) *bool { return &e.offer.Fake })},
	}
}

// value is the value of one key in the file.
type value struct {
	r    *reader
	e    *entry
	n    *yaml.Node
	f    *field
	path string
}

func (v value) fail(code, message, remedy string) { v.r.Fail(v.n, code, v.path, message, remedy) }

func (v value) example() string { return "write it as in " + v.f.name + ": " + v.f.example }

// word returns what stands in the file as it stands there: 1.0 and true are texts too.
func (v value) word() (string, bool) {
	switch {
	case v.n.Kind != yaml.ScalarNode:
		v.fail("wrong_type", "must be one word, got "+yamlfile.Describe(v.n), v.example())
		return "", false
	case len(v.n.Value) > maxText:
		v.fail("too_large", fmt.Sprintf("must have at most %d bytes, got %d", maxText, len(v.n.Value)), v.example())
		return "", false
	}

	return v.n.Value, true
}

// text reads a name; bad says what is wrong with it and what to do.
func text(at func(*entry) *string, bad func(string) (string, string)) func(value) {
	return func(v value) {
		s, ok := v.word()
		if !ok {
			return
		}

		if problem, remedy := bad(s); problem != "" {
			v.fail("bad_value", problem+", got "+strconv.Quote(s), remedy)
			return
		}

		*at(v.e) = s
	}
}

func badProvider(s string) (problem, remedy string) {
	if id.Name(s) {
		return "", ""
	}

	return "must be a name", "use lower-case letters, digits, '-', '_' and '.', as in aws"
}

// badPart says what is wrong with a part of an offer's name. A slash would make
// two different offers look alike.
func badPart(s string) (problem, remedy string) {
	switch {
	case s == "" || len(s) > maxText || s != strings.TrimSpace(s):
		return "must be a name", "write it as the provider does, without spaces around it"
	case strings.ContainsFunc(s, func(c rune) bool {
		return c == '/' || c == unicode.ReplacementChar ||
			!unicode.IsPrint(c)
	}):
		return "must not have a slash or a character that cannot be printed", "write it as the provider does"
	}

	return "", ""
}

// badGPU says what is wrong with the name of a GPU. Colon and bar have a meaning
// of their own in what jobs ask for.
func badGPU(s string) (problem, remedy string) {
	if strings.ContainsAny(s, ":|") {
		return "must not have a colon or a bar", "write the model here, and its memory in gpu_memory"
	}

	return badPart(s)
}

// unit reads a quantity of package job between two bounds.
func unit[T interface {
	cmp.Ordered
	fmt.Stringer
}](at func(*entry) *T, parse func(string) (T, error), lo, hi T) func(value) {
	return func(v value) {
		s, ok := v.word()
		if !ok {
			return
		}

		got, err := parse(s)
		switch {
		case err != nil:
			v.fail("bad_value", err.Error(), v.example())
		case got < lo || got > hi:
			v.fail("bad_value", fmt.Sprintf("must be between %s and %s, got %q", lo, hi, s), v.example())
		default:
			*at(v.e) = got
		}
	}
}

// length reads a length of time. What is written is in milliseconds, so more is not kept.
func length(at func(*entry) *job.Duration, most time.Duration) func(value) {
	parse := func(s string) (job.Duration, error) {
		d, err := job.ParseDuration(s)
		return d - d%job.Duration(time.Millisecond), err
	}

	return unit(at, parse, 0, job.Duration(most))
}

// whole reads a whole number.
func whole(at func(*entry) *int, most int) func(value) {
	return func(v value) {
		s, ok := v.word()
		if !ok {
			return
		}

		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil || int(n) > most {
			v.fail("bad_value", fmt.Sprintf("must be an integer between 0 and %d, got %q", most, s), v.example())
			return
		}

		*at(v.e) = int(n)
	}
}

// number reads a number that is not negative.
func number(at func(*entry) *float64, most float64) func(value) {
	return func(v value) {
		s, ok := v.word()
		if !ok {
			return
		}

		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || f < 0 || f > most {
			v.fail("bad_value", fmt.Sprintf("must be a number between 0 and %s, got %q", plain(most), s), v.example())
			return
		}

		*at(v.e) = f + 0 // no negative zero
	}
}

// flag reads true or false.
func flag(at func(*entry) *bool) func(value) {
	return func(v value) {
		if s, ok := v.word(); ok {
			if s != "true" && s != "false" {
				v.fail("bad_value", fmt.Sprintf("must be true or false, got %q", s), v.example())
				return
			}

			*at(v.e) = s == "true"
		}
	}
}

// plain writes a number without an exponent, with as many digits as it needs.
func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func names(fields []field) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}

	return all
}

// instead says what to write instead of a key that is not known.
func (r *reader) instead(fields []field, key string) string {
	plainKey := strings.NewReplacer("_", "", "-", "", " ", "")
	meant := func(name string) bool { return strings.EqualFold(plainKey.Replace(name), plainKey.Replace(key)) }
	for _, f := range fields {
		if meant(f.name) || slices.ContainsFunc(f.also, meant) {
			return "did you mean " + f.name + "?"
		}
	}

	if best := r.Finder.Closest(key, names(fields)); best != "" {
		return "did you mean " + best + "?"
	}

	for _, other := range [][]field{providerFields(), typeFields()} {
		if slices.Contains(names(other), key) {
			return "write " + key + " beside " + other[0].name
		}
	}

	return "the keys here are " + strings.Join(names(fields), ", ")
}
