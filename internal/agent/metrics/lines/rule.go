package lines

import (
	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/fault"
	"trainyard/internal/pattern"
)

// rule is a regular expression given by the user.
type rule struct {
	re    *pattern.Pattern
	names []string
	count counter
}

// compile reads a rule.
func compile(text string) (*rule, error) {
	re, err := pattern.Compile(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_rule", "invalid regular expression %q: %v", text, err).WithField("metrics").
			WithRemedy("use Go syntax with named groups, e.g. (?P<loss>[0-9.]+)")
	}

	return &rule{re: re, names: re.SubexpNames()}, nil
}

// affords pays for comparing a line with the rules, and reports whether that was possible.
func (p *Parser) affords(line string) bool {
	if p.Budget < 0 {
		return false
	}

	for _, r := range p.rules {
		p.Budget -= r.re.Cost(len(line))
	}

	return p.Budget >= 0
}

// CostPerByte is how many steps it takes to compare a byte of output with the rules.
func (p *Parser) CostPerByte() int64 {
	var total int64
	for _, r := range p.rules {
		total += r.re.Cost(0)
	}

	return total
}

// byRule parses a line by the first rule that matches and yields a value.
func (p *Parser) byRule(line string) (reading.Reading, bool) {
	for _, r := range p.rules {
		m := r.re.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if out := r.read(m); !out.Empty() {
			return out, true
		}
	}

	return reading.Reading{}, false
}

// read converts the groups of a match to a reading. A pair of groups called name and value is a
// metric whose name is in the line.
func (r *rule) read(m []string) reading.Reading {
	var out reading.Reading
	var step, total, epoch, epochTotal, value reading.Number

	name := ""
	for i, group := range r.names {
		if i == 0 || group == "" {
			continue
		}

		v, ok := reading.Parse(m[i])
		number := reading.Number{Value: v, Known: ok}

		switch group {
		case "step":
			step = number
		case "total":
			total = number
		case "epoch":
			epoch = number
		case "epochs":
			epochTotal = number
		case "name":
			name = m[i]
		case "value":
			value = number
		default:
			if ok {
				out.Add(group, v)
			}
		}
	}

	switch {
	case value.Known && name != "":
		out.Add(name, value.Value)
	case value.Known:
		out.Add("value", value.Value)
	}

	if epoch.Known {
		r.count.epoch(epoch.Value)
	}

	switch {
	case step.Known:
		out.Step = reading.Known(r.count.total(step.Value, 0))
		out.Done, out.Total = out.Step, total
		if total.Known && epochTotal.Known {
			out.Total.Value *= epochTotal.Value
		}
	case epoch.Known:
		out.Step, out.Done, out.Total = epoch, epoch, epochTotal
	}

	return out
}
