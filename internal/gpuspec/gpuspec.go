// Package gpuspec holds the specifications of GPU models as their vendors publish them.
//
// The agent fills the resource table from it where nothing was measured, and
// offers of on-demand nodes, of which only a name is known, are compared by it.
// The table is facts from the vendors' public data sheets, one row for each
// device that a driver shows: rates are dense, without sparsity, with sums in
// fp32; a board of two devices is two rows' worth. The package is pure. It
// measures nothing and says nothing about a device at hand.
package gpuspec

import (
	"math"
	"strconv"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// Spec is what is known about a kind of GPU. 0 means not known or not there.
type Spec struct {
	Name      string
	Vendor    string
	Arch      string
	Memory    job.Bytes
	Bandwidth float64 // of its memory, GB/s
	// Dense TFLOPS by the kind of number; fp32 without, the others with matrix
	// units where it has them.
	FP32, TF32, FP16, BF16, FP8 float64
	TDP                         float64 // watts
	// Achievable is the best bf16 matrix product that was seen in practice, TFLOPS.
	Achievable float64
}

// Peak returns the TFLOPS at which such a device would train: in bf16, or in fp16
// or fp32 if it has no bf16.
func (s Spec) Peak() float64 {
	switch {
	case s.BF16 > 0:
		return s.BF16
	case s.FP16 > 0:
		return s.FP16
	}

	return s.FP32
}

// The vendors.
const (
	nvidia = "NVIDIA"
	amd    = "AMD"
	intel  = "Intel"
)

// row is one line of the tables. Fields are in the order of Spec, memory in GB;
// names lists, in the form that plain gives and apart by |, what drivers and clouds call it.
// Of two rows that share a name, the first is used where the memory is unknown.
type row struct {
	name, vendor, arch          string
	memory                      float64
	bandwidth                   float64
	fp32, tf32, fp16, bf16, fp8 float64
	tdp, achievable             float64
	names                       string
}

func (r *row) spec() Spec {
	return Spec{
		Name: r.name, Vendor: r.vendor, Arch: r.arch, Memory: job.Bytes(r.memory * (1 << 30)), Bandwidth: r.bandwidth,
		FP32: r.fp32, TF32: r.tf32, FP16: r.fp16, BF16: r.bf16, FP8: r.fp8, TDP: r.tdp, Achievable: r.achievable,
	}
}

// called reports whether a name in the form of plain is one of the row's.
func (r *row) called(name string) bool {
	for n := range strings.SplitSeq(r.names, "|") {
		if n == name {
			return true
		}
	}

	return false
}

var tables = [][]row{dataCentre, workstations, consumer, others}

// All lists every kind of GPU that is known, by vendor and generation.
func All() []Spec {
	var all []Spec
	for _, table := range tables {
		for i := range table {
			all = append(all, table[i].spec())
		}
	}

	return all
}

// otherMemory is how far the memory of a device may be from that of its kind,
// as a logarithm: drivers keep some back and vendors count in two ways, but a GPU
// with three quarters of the memory is another kind, or a part of one.
const otherMemory = 0.25

// Find returns the kind of GPU with this name: what a driver reports, as in
// "NVIDIA A100-SXM4-80GB", or what clouds say, as in "A100-80GB" or "RTX4090".
// The whole name must match, so that an A10G does not match A10. Several kinds that share
// a name are told apart by their memory; 0 if that is not known. A device whose
// memory fits no kind of its name is not found: it may be a part of one.
func Find(model string, memory job.Bytes) (Spec, bool) {
	name := plain(model)
	if spec, ok := find(name, memory); ok {
		return spec, ok
	}

	// A cloud writes the memory behind any name.
	if short, size, ok := cutMemory(model); ok && (memory == 0 || apart(memory, size) < otherMemory) {
		return find(plain(short), size)
	}

	return Spec{}, false
}

func find(name string, memory job.Bytes) (Spec, bool) {
	var best *row
	least := otherMemory
	for _, table := range tables {
		for i := range table {
			r := &table[i]
			if !r.called(name) {
				continue
			}
			if memory <= 0 {
				return r.spec(), true
			}

			if d := apart(memory, job.Bytes(r.memory*(1<<30))); d < least {
				best, least = r, d
			}
		}
	}

	if best == nil {
		return Spec{}, false
	}

	return best.spec(), true
}

// apart says how different two amounts are, 0 if they are the same.
func apart(a, b job.Bytes) float64 { return math.Abs(math.Log(float64(a) / float64(b))) }

// plain reduces a name to what tells it from others: lower-case letters and
// digits, without the vendor. Clouds write the same name with blanks, hyphens or
// neither.
func plain(model string) string {
	model = strings.ToLower(model)
	for _, mark := range []string{"(r)", "(tm)"} {
		model = strings.ReplaceAll(model, mark, "")
	}

	var b strings.Builder
	for _, c := range []byte(model) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '+' {
			b.WriteByte(c)
		}
	}

	name := b.String()
	for _, vendor := range []string{"nvidia", "amd", "intel"} {
		name = strings.TrimPrefix(name, vendor)
	}

	return name
}

// cutMemory splits the memory off a name that ends with it, as in H100-80GB.
func cutMemory(model string) (name string, memory job.Bytes, ok bool) {
	i := strings.LastIndexAny(model, " -_")
	if i < 0 {
		return "", 0, false
	}

	digits := strings.TrimSuffix(strings.ToLower(model[i+1:]), "b")
	digits, ok = strings.CutSuffix(digits, "g")
	gb, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || gb == 0 {
		return "", 0, false
	}

	return model[:i], job.Bytes(gb) << 30, true
}

// Describe returns a GPU with its peak, its bandwidth and its power limit filled
// in from the table where they are not known. A GPU of no known kind is
// returned as it is.
func Describe(g fleet.GPU) fleet.GPU {
	spec, ok := Find(strings.TrimSuffix(g.Model, fleet.FakeMark), g.Memory)
	if !ok {
		return g
	}

	if g.Peak == 0 {
		g.Peak, g.Achievable = spec.Peak(), spec.Achievable
	}

	if g.Bandwidth == 0 {
		g.Bandwidth = spec.Bandwidth
	}

	if g.Watts == 0 {
		g.Watts = spec.TDP
	}

	return g
}
