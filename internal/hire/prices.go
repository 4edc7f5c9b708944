// Package hire decides about on-demand nodes: what could be hired, which of it
// pays for a job, what is not worth asking for now, and when an idle node is
// given back.
//
// It stands between place, which decides that a job shall not wait for a node
// that the team has, and cloud, which carries hiring out. Offers come from a price
// file (ParseOffers) or a catalogue that others keep (SkyPilot); Market remembers
// which of them were refused lately and how often their nodes were taken back; Best
// prices them for a job; Keep says when a hired node that nothing uses goes back.
// The package is pure: it asks no provider and holds no lease.
package hire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/suggest"
)

// The limits on what a price file may hold.
const (
	maxFile     = 4 << 20 // bytes
	maxOffers   = 10_000
	maxMistakes = 100 // told at once
	maxText     = 100 // bytes of a name
)

// ParseOffers reads a price file, the list of what may be hired. The name of the
// file is for the error, which wraps a fault.List with all mistakes in the order of
// the file; there are offers only without any.
//
// The file is a list of providers. What stands beside the name of a provider holds
// for all its types, unless the type says otherwise:
//
//	providers:
//	  - provider: aws          # names the adapter that hires
//	    region: us-east-1      # may be left out where the provider has one only
//	    boot: 4m               # from the order until the node can run something
//	    least: 1m              # paid at least, however soon it is given back
//	    bills: 1h              # paid by whole stretches; left out: by the second
//	    losses: 0.03           # of spot nodes: how often one is taken back, per hour
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
//	        most: 8            # at once, of each kind
//
// A type with both prices is two offers, the one on demand first. No two offers
// may have one name, which is PROVIDER/TYPE/REGION, with /ZONE and /spot.
func ParseOffers(name string, text []byte) ([]fleet.Offer, error) {
	r := &reader{seen: map[string]int{}}
	offers := r.file(text)
	if len(r.mistakes) == 0 {
		return offers, nil
	}
	slices.SortStableFunc(r.mistakes, func(a, b *fault.Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.more > 0 {
		r.mistakes = append(r.mistakes, fault.New(fault.Invalid, "too_many_errors", "there are %d more mistakes", r.more).
			WithRemedy("mend these first and read the file again"))
	}
	return nil, fmt.Errorf("%s: %w", name, r.mistakes)
}

// reader collects what a price file says and what is wrong with it.
type reader struct {
	offers   []fleet.Offer
	seen     map[string]int // names of offers and their lines
	mistakes fault.List
	more     int // mistakes beyond maxMistakes
	full     bool
	finder   suggest.Finder
}

// fail keeps a mistake at a place of the file, or counts it if there are too many.
func (r *reader) fail(n *yaml.Node, code, path, message, remedy string) {
	if len(r.mistakes) >= maxMistakes {
		r.more++
		return
	}
	e := &fault.Error{Kind: fault.Invalid, Code: code, Message: message, Field: path, Remedy: remedy}
	if n != nil {
		e.Line, e.Column = n.Line, n.Column
	}
	r.mistakes = append(r.mistakes, e)
}

// file reads the whole text.
func (r *reader) file(text []byte) []fleet.Offer {
	if len(text) > maxFile {
		r.fail(nil, "too_large", "", fmt.Sprintf("the price file has %d bytes and may have %d", len(text), maxFile),
			"leave out the regions and types that you would never hire")
		return nil
	}
	root, more, err := decode(text)
	switch {
	case err != nil:
		place, problem := splitSyntax(err)
		r.fail(place, "yaml_syntax", "", "this is no YAML: "+problem, "see the lines around it")
		return nil
	case root == nil:
		r.fail(nil, "empty_file", "", "the price file holds nothing", "write at least the line providers: []")
		return nil
	case more:
		r.fail(root, "too_many_documents", "", "the price file has several documents", "take the lines --- out and put all providers into one list")
		return nil
	}
	top := []field{{name: "providers", list: providerFields(), example: "[{provider: aws, types: []}]", also: []string{"offers", "clouds"}, must: true}}
	r.mapping(&entry{}, root, "", top)
	return r.offers
}

// decode returns the top of the first document, nil if there is none, and whether
// there are more. The YAML package is not ours and its input comes from outside,
// so that a panic of its is taken for a mistake of the file.
func decode(text []byte) (root *yaml.Node, more bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if err := dec.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		return nil, false, err
	}
	err = dec.Decode(&second)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if len(first.Content) != 1 || isNull(first.Content[0]) {
		return nil, err == nil, nil
	}
	return first.Content[0], err == nil, nil
}

// splitSyntax takes "yaml: line 3: problem" apart; the line is the first if it is not told.
func splitSyntax(err error) (*yaml.Node, string) {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, after, _ := strings.Cut(rest, ": ")
		if line, convErr := strconv.Atoi(number); convErr == nil && line > 0 {
			return &yaml.Node{Line: line, Column: 1}, after
		}
	}
	return &yaml.Node{Line: 1, Column: 1}, problem
}

// mapping reads the keys of a mapping that the table knows and reports the others.
// It returns the place of each value that was given.
func (r *reader) mapping(e *entry, n *yaml.Node, path string, fields []field) map[string]*yaml.Node {
	given := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		r.fail(n, "wrong_type", path, "must be lines of key: value, not "+describe(n), "the keys here are "+strings.Join(names(fields), ", "))
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := slices.IndexFunc(fields, func(f field) bool { return key.Kind == yaml.ScalarNode && f.name == key.Value })
		switch {
		case at < 0:
			if len(r.mistakes) >= maxMistakes {
				r.more++ // its suggestion would be work for nothing
				continue
			}
			r.fail(key, "unknown_key", join(path, shown(key.Value)), "unknown key", r.instead(fields, key.Value))
			continue
		case given[key.Value] != nil:
			r.fail(key, "duplicate_key", join(path, key.Value), fmt.Sprintf("the key is given twice, first in line %d", given[key.Value].Line), "take one of them out")
			continue
		}
		given[key.Value] = val
		f := &fields[at]
		v := value{r: r, e: e, n: val, f: f, path: join(path, f.name)}
		switch {
		case isNull(val):
			v.fail("missing_value", "has no value", v.example()+", or take the line out")
		case f.list == nil:
			f.read(v)
		case !f.late: // types come last, when the defaults beside them are known
			r.list(v)
		}
	}
	for i := range fields {
		f := &fields[i]
		if val := given[f.name]; f.must && val == nil {
			r.fail(n, "missing_key", join(path, f.name), "is missing", "add a line as in "+f.name+": "+f.example)
		} else if f.late && val != nil && !isNull(val) {
			r.list(value{r: r, e: e, n: val, f: f, path: join(path, f.name)})
		}
	}
	return given
}

// list reads a list of mappings, each of which starts with what e says.
func (r *reader) list(v value) {
	if v.n.Kind != yaml.SequenceNode {
		v.fail("wrong_type", "must be a list, not "+describe(v.n), v.example())
		return
	}
	for i, n := range v.n.Content {
		path := fmt.Sprintf("%s[%d]", v.path, i)
		e := *v.e
		before := len(r.mistakes) + r.more
		given := r.mapping(&e, n, path, v.f.list)
		if v.f.late && len(r.mistakes)+r.more == before {
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
		r.fail(given["gpus"], "bad_value", join(path, "gpus"), "a node with 0 GPUs has no gpu", "take gpu out, or write how many it has")
		return
	case o.GPU == "" && (o.GPUs > 0 || o.GPUMemory > 0 || o.TFLOPS > 0):
		r.fail(n, "missing_key", join(path, "gpu"), "is missing: it is not told which GPUs these are", "add a line as in gpu: H100")
		return
	}
	if given["hourly"] == nil && given["spot"] == nil {
		r.fail(n, "missing_key", join(path, "hourly"), "is missing: there is no price", "add a line as in hourly: $1.006, or spot: $0.43")
		return
	}
	if given["hourly"] != nil {
		onDemand := o
		onDemand.Hourly, onDemand.Losses = e.hourly, 0
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
		r.fail(n, "duplicate_offer", path, fmt.Sprintf("the offer %s is in the file twice, first in line %d", o.Name, first),
			"take one of them out, or tell them apart by region or zone")
		return
	}
	if len(r.offers) >= maxOffers {
		if !r.full {
			r.full = true
			r.fail(n, "too_large", path, fmt.Sprintf("the price file has more than %d offers", maxOffers), "leave out the regions and types that you would never hire")
		}
		return
	}
	r.seen[o.Name] = n.Line
	r.offers = append(r.offers, o)
}
