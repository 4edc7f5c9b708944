package lines

import (
	"regexp"
	"regexp/syntax"

	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/fault"
)

// rule is a regular expression given by the user.
type rule struct {
	re    *regexp.Regexp
	names []string
	count counter
}

// compile reads a rule.
func compile(text string) (*rule, error) {
	re, err := regexp.Compile(text)
	if err != nil {
		why := err.Error()
		if se, ok := err.(*syntax.Error); ok { //nolint:errorlint // the package returns it bare
			why = se.Code.String()
		}

		return nil, fault.New(fault.Invalid, "bad_rule", "invalid regular expression %q: %s", text, why).WithField("metrics").
			WithRemedy("use Go syntax with named groups, e.g. (?P<loss>[0-9.]+)")
	}

	return &rule{re: re, names: re.SubexpNames()}, nil
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
