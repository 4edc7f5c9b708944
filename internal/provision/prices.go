// Package provision chooses offers for jobs, backs off from refused ones and releases idle nodes.
//
// It stands between place, which decides that a job shall not wait for a node
// that the team has, and cloud, which makes the calls. Offers come from a price
// file (ParseOffers) or from SkyPilot's catalog (SkyPilot); Catalog records
// which of them were refused recently and how often their spot nodes were interrupted; Options
// estimates finish and cost of each for a job; CheckIdle decides when an idle node is released.
// The package is pure: it asks no provider and holds no lease.
package provision

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fleet"
	"trainyard/internal/yamlfile"
)

// The limits on what a price file may hold.
const (
	maxFile   = 4 << 20 // bytes
	maxOffers = 10_000
	maxText   = 100 // bytes of a name
)

// ParseOffers reads a price file, the list of what may be provisioned. The name of the
// file is for the error, which wraps a fault.List with all mistakes in the order of
// the file; there are offers only without any.
//
// The file is a list of providers. What stands beside the name of a provider holds
// for all its types, unless the type says otherwise:
//
//	providers:
//	  - provider: aws          # names the adapter that provisions
//	    region: us-east-1      # may be left out where the provider has one only
//	    boot: 4m               # from the order until the node can run something
//	    min_billing: 1m              # paid at least, however soon it is given back
//	    billing_increment: 1h              # paid by whole stretches; left out: by the second
//	    loss_rate: 0.03           # of spot nodes: how often one is taken back, per hour
//	    types:
//	      - type: g5.xlarge    # as the provider calls it
//	        zone: use1-az1
//	        gpu: A10G
//	        gpus: 1            # left out: 1 if there is a gpu
//	        gpu_memory: 24GB   # of one GPU
//	        tflops: 70         # peak of one GPU; left out: by the table of GPUs
//	        cpus: 4
//	        memory: 16GB
//	        hourly: $1.006     # on demand
//	        spot: $0.43        # taken back when the provider wants; hourly, spot or both
//	        max_nodes: 8            # at once, of each kind
//
// A type with both prices is two offers, the one on demand first. No two offers
// may have one name, which is PROVIDER/TYPE/REGION, with /ZONE and /spot.
func ParseOffers(name string, text []byte) ([]fleet.Offer, error) {
	r := &reader{seen: map[string]int{}}
	offers := r.file(text)

	if err := r.Sorted().OrNil(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return offers, nil
}

// reader collects what a price file says and what is wrong with it.
type reader struct {
	yamlfile.Mistakes

	offers []fleet.Offer
	seen   map[string]int // names of offers and their lines
	full   bool
}

// file reads the whole text.
func (r *reader) file(text []byte) []fleet.Offer {
	if len(text) > maxFile {
		r.Fail(nil, "too_large", "", fmt.Sprintf("the price file must have at most %d bytes, got %d", maxFile, len(text)),
			"leave out the regions and types that you would never provision")
		return nil
	}

	roots, complete := r.Documents(text, 2)
	switch {
	case !complete:
		return nil
	case len(roots) == 0 || yamlfile.IsNull(roots[0]):
		r.Fail(nil, "empty_file", "", "the price file is empty", "write at least the line providers: []")
		return nil
	case len(roots) > 1:
		r.Fail(
			roots[0],
			"too_many_documents",
			"",
			"the price file must have one document, got several",
			"remove the lines --- and put all providers into one list",
		)

		return nil
	}

	root := roots[0]
	if !r.Structure(root) {
		return nil
	}

	top := []field{
		{
			name:    "providers",
			list:    providerFields(),
			example: "[{provider: aws, types: []}]",
			also:    []string{"offers", "clouds"},
			must:    true,
		},
	}

	r.mapping(&entry{}, root, "", top)

	return r.offers
}

// mapping reads the keys of a mapping that the table knows and reports the others.
// It returns the place of each value that was given.
func (r *reader) mapping(e *entry, n *yaml.Node, path string, fields []field) map[string]*yaml.Node {
	given := map[string]*yaml.Node{}

	if n.Kind != yaml.MappingNode {
		r.Fail(
			n,
			"wrong_type",
			path,
			"must be lines of key: value, got "+yamlfile.Describe(n),
			"the keys here are "+strings.Join(names(fields), ", "),
		)

		return nil
	}

	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := slices.IndexFunc(fields, func(f field) bool { return key.Kind == yaml.ScalarNode && f.name == key.Value })
		switch {
		case at < 0:
			if r.Full() {
				r.Skip() // its suggestion would be work for nothing
				continue
			}

			r.Fail(
				key,
				"unknown_key",
				yamlfile.Join(path, yamlfile.Shown(key.Value)),
				"unknown key",
				r.instead(fields, key.Value),
			)

			continue
		case given[key.Value] != nil:
			continue // reported with the structure of the file
		}

		given[key.Value] = val
		f := &fields[at]
		v := value{r: r, e: e, n: val, f: f, path: yamlfile.Join(path, f.name)}
		switch {
		case yamlfile.IsNull(val):
			v.fail("missing_value", "must have a value, got nothing", v.example()+", or remove the line")
		case f.list == nil:
			f.read(v)
		case !f.late: // types come last, when the defaults beside them are known
			r.list(v)
		}
	}

	for i := range fields {
		f := &fields[i]
		if val := given[f.name]; f.must && val == nil {
			r.Fail(n, "missing_key", yamlfile.Join(path, f.name), "is required", "add a line such as "+f.name+": "+f.example)
		} else if f.late && val != nil && !yamlfile.IsNull(val) {
			r.list(value{r: r, e: e, n: val, f: f, path: yamlfile.Join(path, f.name)})
		}
	}

	return given
}

// list reads a list of mappings, each of which starts with what e says.
func (r *reader) list(v value) {
	if v.n.Kind != yaml.SequenceNode {
		v.fail("wrong_type", "must be a list, got "+yamlfile.Describe(v.n), v.example())
		return
	}

	for i, n := range v.n.Content {
		path := fmt.Sprintf("%s[%d]", v.path, i)
		e := *v.e
		before := r.Len()

		given := r.mapping(&e, n, path, v.f.list)
		if v.f.late && r.Len() == before {
			r.offer(&e, n, path, given)
		}
	}
}

// offer keeps the offers of a type that has no mistake of its own.
func (r *reader) offer(e *entry, n *yaml.Node, path string, given map[string]*yaml.Node) {
	o := e.offer
	switch {
	case o.GPU != "" && given["gpus"] == nil:
		o.GPUs = 1
	case o.GPU != "" && o.GPUs == 0:
		r.Fail(
			given["gpus"],
			"bad_value",
			yamlfile.Join(path, "gpus"),
			"must be at least 1 with a gpu, got 0",
			"remove gpu, or write how many it has",
		)

		return
	case o.GPU == "" && (o.GPUs > 0 || o.GPUMemory > 0 || o.TFLOPS > 0):
		r.Fail(
			n,
			"missing_key",
			yamlfile.Join(path, "gpu"),
			"is required with gpus, gpu_memory and tflops",
			"add a line such as gpu: H100",
		)

		return
	}

	if given["hourly"] == nil && given["spot"] == nil {
		r.Fail(
			n,
			"missing_key",
			yamlfile.Join(path, "hourly"),
			"is required unless there is a spot price",
			"add a line such as hourly: $1.006, or spot: $0.43",
		)

		return
	}

	if given["hourly"] != nil {
		onDemand := o
		onDemand.Hourly, onDemand.LossRate = e.hourly, 0
		r.add(onDemand, n, path)
	}

	if given["spot"] != nil {
		spot := o
		spot.Spot, spot.Hourly = true, e.spot
		r.add(spot, n, path)
	}
}

// add keeps an offer whose name is new.
func (r *reader) add(o fleet.Offer, n *yaml.Node, path string) {
	o.Name = o.NameOf()
	if first, ok := r.seen[o.Name]; ok {
		r.Fail(
			n,
			"duplicate_offer",
			path,
			fmt.Sprintf("must be unique, but offer %s is already defined (line %d)", o.Name, first),
			"remove one of them, or give them different regions or zones",
		)

		return
	}

	if len(r.offers) >= maxOffers {
		if !r.full {
			r.full = true
			r.Fail(
				n,
				"too_large",
				path,
				fmt.Sprintf("the price file must have at most %d offers, got more", maxOffers),
				"leave out the regions and types that you would never provision",
			)
		}

		return
	}

	r.seen[o.Name] = n.Line
	r.offers = append(r.offers, o)
}
