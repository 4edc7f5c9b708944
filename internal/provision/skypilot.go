package provision

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Import says what is taken of a catalogue and what it does not tell.
type Import struct {
	Regions []string      // these alone; none means all
	GPUs    []job.GPUKind // these alone; none means all
	// Memory returns the memory of one GPU of a model, 0 if unknown. It is asked
	// where the catalogue says nothing. Nil means that nothing is known.
	Memory func(model string) job.Bytes

	Boot, BillingIncrement, MinBilling job.Duration // of every offer
	LossRate                           float64      // of every spot offer
}

// Skipped counts the rows of a catalogue that became no offer, by the reason.
type Skipped map[string]int

// Total returns how many rows there were in all.
func (s Skipped) Total() int {
	sum := 0
	for _, n := range s {
		sum += n
	}

	return sum
}

// String lists the reasons, the most frequent first.
func (s Skipped) String() string {
	reasons := slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		if s[a] != s[b] {
			return s[b] - s[a]
		}

		return strings.Compare(a, b)
	})

	for i, why := range reasons {
		reasons[i] = fmt.Sprintf("%d: %s", s[why], why)
	}

	return strings.Join(reasons, "; ")
}

// Why rows of a catalogue are skipped.
const (
	noHost       = "no host machine"
	noGPU        = "accelerator is not a GPU"
	noPrice      = "no price"
	noMachine    = "CPUs or memory missing"
	partOfGPU    = "fraction of a GPU"
	mixedGPUs    = "several GPU models"
	duplicateRow = "duplicate of an earlier row"
	badRow       = "invalid row"
	otherRegion  = "region not selected"
	otherGPU     = "GPU not selected"
)

// maxRows is how many rows a catalogue may have.
const maxRows = 200_000

// SkyPilot reads a catalogue as SkyPilot keeps them: a CSV file of the machines of
// one cloud. A row with both prices becomes two offers, the one on demand first. A
// row that cannot be provisioned as it stands is skipped and counted.
//
// The catalogues are written by a program for each cloud and differ. Columns come
// in any order. GpuInfo is JSON, or the same as Python writes it, or only the name
// of the GPU, or blank, which stands for accelerators that are no GPUs. The memory in it
// is of one GPU in most catalogues and of all together in some, which shows in
// that it grows with their number; and it is in GiB in some, which shows in that
// it would be less than one.
func SkyPilot(cloud string, r io.Reader, opt Import) ([]fleet.Offer, Skipped, error) {
	if !id.Name(cloud) {
		return nil, nil, fault.New(fault.Invalid, "bad_value", "invalid provider name %q", cloud).
			WithRemedy("use lower-case letters and digits, as in aws")
	}

	rows, skipped, err := readCatalogue(cloud, r)
	if err != nil {
		return nil, nil, err
	}

	together := grows(rows)
	seen := map[string]bool{}
	var offers []fleet.Offer

	for i := range rows {
		row := &rows[i]
		if together {
			row.memory /= float64(max(row.offer.GPUs, 1))
		}

		why := row.finish(opt)
		before := len(offers)

		for spot, price := range []job.Money{row.price, row.spot} {
			if why != "" || price == 0 {
				continue
			}

			o := row.offer
			o.Spot, o.Hourly = spot == 1, price
			if o.Spot {
				o.LossRate = opt.LossRate
			}

			o.Name = o.NameOf()
			if !seen[o.Name] {
				seen[o.Name] = true
				offers = append(offers, o)
			}
		}

		switch {
		case why != "":
			skipped[why]++
		case len(offers) == before:
			skipped[duplicateRow]++
		}
	}

	return offers, skipped, nil
}

// row is one row of a catalogue while it is read.
type row struct {
	offer       fleet.Offer
	memory      float64 // MiB, of one GPU or of all together; 0 if not told
	price, spot job.Money
}

// finish completes the offer and says why it is none, "" if it is one.
func (r *row) finish(opt Import) string {
	o := &r.offer
	o.GPUMemory = job.Bytes(r.memory) << 20
	if o.GPUMemory == 0 {
		o.GPUMemory = sizeInName(o.GPU)
	}

	if o.GPUMemory == 0 && opt.Memory != nil {
		o.GPUMemory = opt.Memory(o.GPU)
	}

	o.Boot = opt.Boot
	o.BillingIncrement = opt.BillingIncrement
	o.MinBilling = opt.MinBilling
	matches := func(k job.GPUKind) bool { return k.Matches(o.GPU, o.GPUMemory) }
	switch {
	case len(opt.Regions) > 0 && !slices.Contains(opt.Regions, o.Region):
		return otherRegion
	case len(opt.GPUs) > 0 && !slices.ContainsFunc(opt.GPUs, matches):
		return otherGPU
	}

	return ""
}

// columns are those that a catalogue must have; AvailabilityZone may be missing.
var columns = []string{
	"InstanceType",
	"AcceleratorName",
	"AcceleratorCount",
	"vCPUs",
	"MemoryGiB",
	"GpuInfo",
	"Price",
	"SpotPrice",
	"Region",
}

// readCatalogue reads all rows and counts those that say too little.
func readCatalogue(cloud string, r io.Reader) ([]row, Skipped, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "bad_catalogue", "the catalog of %s has no header line", cloud).
			WithCause(err)
	}

	at := map[string]int{}
	for i, name := range head {
		at[strings.Clone(strings.TrimSpace(name))] = i
	}

	for _, name := range columns {
		if _, ok := at[name]; !ok {
			return nil, nil, fault.New(fault.Invalid, "bad_catalogue", "the catalog of %s has no column %s", cloud, name).
				WithRemedy("its header must have the columns %s", strings.Join(columns, ", "))
		}
	}

	var rows []row

	skipped := Skipped{}
	for n := 0; ; n++ {
		record, err := in.Read()
		switch {
		case errors.Is(err, io.EOF):
			return rows, skipped, nil
		case err != nil:
			return nil, nil, fault.New(fault.Invalid, "bad_catalogue", "cannot read the catalog of %s: %v", cloud, err).
				WithCause(err)
		case n >= maxRows:
			return nil, nil, fault.New(fault.Invalid, "too_large", "the catalog of %s must have at most %d rows", cloud, maxRows)
		}

		get := func(name string) string {
			if i, ok := at[name]; ok && i < len(record) {
				return strings.TrimSpace(record[i])
			}

			return ""
		}

		if got, why := readRow(cloud, get); why == "" {
			rows = append(rows, got)
		} else {
			skipped[why]++
		}
	}
}

// readRow reads one row and says why it is of no use, "" if it is.
func readRow(cloud string, get func(column string) string) (row, string) {
	var r row
	o := &r.offer
	o.Provider, o.Type = cloud, strings.Clone(get("InstanceType"))
	o.Region, o.Zone = place(get("Region")), place(get("AvailabilityZone"))
	name, about := get("AcceleratorName"), get("GpuInfo")

	if o.Type == "" {
		return r, noHost
	}
	if about == "" || strings.HasPrefix(name, "tpu-") {
		return r, noGPU
	}

	count, err := strconv.ParseFloat(get("AcceleratorCount"), 64)
	switch {
	case err != nil || !(count > 0) || count > fleet.MaxGPUs:
		return r, badRow
	case count != float64(int(count)):
		return r, partOfGPU
	}

	o.GPUs, o.GPU = int(count), modelName(name)
	for _, part := range []string{o.Type, o.Region, o.Zone} {
		if problem, _ := badPart(part); problem != "" && part != "" {
			return r, badRow
		}
	}

	if problem, _ := badGPU(o.GPU); problem != "" {
		return r, badRow
	}

	if strings.HasPrefix(about, "{") {
		info, ok := readInfo(about)
		switch {
		case !ok:
			return r, badRow
		case info.kinds > 1:
			return r, mixedGPUs
		}

		r.memory = info.mib
	}

	if why := r.machine(get("vCPUs"), get("MemoryGiB")); why != "" {
		return r, why
	}

	return r, r.prices(get("Price"), get("SpotPrice"))
}

// machine reads what the machine has beside its GPUs.
func (r *row) machine(cpus, memory string) string {
	if cpus == "" || memory == "" {
		return noMachine
	}

	c, cpuErr := strconv.ParseFloat(cpus, 64)

	m, memErr := strconv.ParseFloat(memory, 64)
	if cpuErr != nil || memErr != nil || !(c >= 0) || !(m >= 0) || c > 1e5 || m > 1e6 {
		return badRow
	}

	r.offer.CPUs, r.offer.Memory = job.CPUs(c*1000), job.Bytes(m*1024)<<20
	if r.offer.CPUs == 0 || r.offer.Memory == 0 {
		return noMachine
	}

	return ""
}

// prices reads the prices. A price of nothing means that there is none.
func (r *row) prices(price, spot string) string {
	for _, p := range []struct {
		text string
		at   *job.Money
	}{{price, &r.price}, {spot, &r.spot}} {
		if p.text == "" {
			continue
		}

		m, err := job.ParseMoney(p.text)
		if err != nil || m > maxHourly {
			return badRow
		}

		*p.at = m
	}

	if r.price == 0 && r.spot == 0 {
		return noPrice
	}

	return ""
}

// place cleans the name of a region: ", CA, NA" is one where a town is not told.
func place(s string) string { return strings.Clone(strings.Trim(s, " ,")) }

// grows reports whether the memory that rows tell grows with the number of GPUs,
// so that it must be of all together. Every two machines with the same GPU and
// different numbers of it speak for one or the other.
func grows(rows []row) bool {
	type size struct {
		gpus int
		mib  float64
	}

	sizes := map[string][]size{}
	for i := range rows {
		r := &rows[i]
		if s := (size{r.offer.GPUs, r.memory}); s.mib > 0 && !slices.Contains(sizes[r.offer.GPU], s) {
			sizes[r.offer.GPU] = append(sizes[r.offer.GPU], s)
		}
	}

	together, each := 0, 0
	for _, all := range sizes {
		for i, a := range all[:min(len(all), 64)] { // a catalogue made to be slow stays fast
			for _, b := range all[:i] {
				few, many := a, b
				if few.gpus > many.gpus {
					few, many = many, few
				}

				if few.gpus == many.gpus {
					continue
				}

				switch more := many.mib / few.mib; {
				case alike(more, 1):
					each++
				case alike(more, float64(many.gpus)/float64(few.gpus)):
					together++
				}
			}
		}
	}

	return together > each
}

func alike(a, b float64) bool { return a > b*0.95 && a < b*1.05 }

var (
	sizeWord = regexp.MustCompile(`(?i)^([0-9]+)GB?$`)
	rtxWord  = regexp.MustCompile(`(?i)^RTX(PRO)?(A?[0-9]+)(ADA)?(WS|WK)?$`)
	workWord = regexp.MustCompile(`(?i)^A(4000|4500|5000|5500|6000)$`)
)

// modelName writes the name of a GPU in the words that its driver uses, so that a
// job which names a GPU gets a node whose GPUs it accepts when they have joined:
// RTX4090 is "RTX 4090", RTXA6000 and A6000 are "RTX A6000", A100-80G-SXM is
// "A100 80GB". How GPUs are joined to each other is not in a driver's name.
func modelName(s string) string {
	var out []string
	for _, w := range strings.FieldsFunc(s, func(c rune) bool { return c == ' ' || c == '-' || c == '_' }) {
		if m := sizeWord.FindStringSubmatch(w); m != nil {
			out = append(out, m[1]+"GB")
			continue
		}

		if m := rtxWord.FindStringSubmatch(w); m != nil {
			out = append(out, "RTX")
			for i, part := range []string{"PRO", strings.ToUpper(m[2]), "Ada"} {
				if m[i+1] != "" {
					out = append(out, part)
				}
			}

			continue
		}

		switch upper := strings.ToUpper(w); {
		case len(out) == 0 && workWord.MatchString(w):
			out = append(out, "RTX", upper)
		case strings.HasPrefix(upper, "SXM"), slices.Contains([]string{"NVLINK", "MEGA", "WS", "WK", "SE", "CC"}, upper):
		default:
			out = append(out, w)
		}
	}

	return strings.Join(out, " ")
}

// sizeInName returns the memory that the name of a GPU tells, 0 if it does not.
func sizeInName(name string) job.Bytes {
	for w := range strings.FieldsSeq(name) {
		if m := sizeWord.FindStringSubmatch(w); m != nil {
			if n, err := strconv.ParseUint(m[1], 10, 12); err == nil {
				return job.Bytes(n) << 30
			}
		}
	}

	return 0
}
