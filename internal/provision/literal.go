package provision

import (
	"math"
	"strconv"
	"strings"
)

// gpuInfo is what the column GpuInfo of a catalogue tells.
type gpuInfo struct {
	kinds int     // of GPU
	mib   float64 // memory of one, or of all together; 0 if not told
}

// readInfo reads a GpuInfo that is a mapping, as JSON or as Python writes it.
func readInfo(text string) (gpuInfo, bool) {
	const longest = 16 << 10
	p := &literal{text: text}
	top, ok := p.value(0)
	p.space()

	all, isMap := top.(map[string]any)
	if len(text) > longest || !ok || !isMap || p.at != len(text) {
		return gpuInfo{}, false
	}

	gpus, _ := all["Gpus"].([]any)
	info := gpuInfo{kinds: len(gpus)}
	if len(gpus) == 0 {
		return info, true
	}

	first, _ := gpus[0].(map[string]any)
	memory, _ := first["MemoryInfo"].(map[string]any)
	mib, _ := memory["SizeInMiB"].(float64)
	if mib > 0 && mib < 1024 { // no GPU has less than a GiB: it was written in GiB
		mib *= 1024
	}

	if mib < 0 || mib > 1<<30 {
		return info, false
	}

	info.mib = math.Round(mib)

	return info, true
}

// literal reads a value of JSON or of Python: the two differ in quotes and in how
// they write nothing, yes and no.
type literal struct {
	text string
	at   int
}

// deepest is how many values may lie inside each other.
const deepest = 10

func (p *literal) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// next takes a character if it comes next.
func (p *literal) next(c byte) bool {
	p.space()

	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}

	return false
}

func (p *literal) value(depth int) (any, bool) {
	p.space()

	if p.at >= len(p.text) || depth > deepest {
		return nil, false
	}

	switch c := p.text[p.at]; c {
	case '{':
		return p.mapping(depth)
	case '[':
		return p.list(depth)
	case '\'', '"':
		return p.quoted()
	}

	return p.word()
}

func (p *literal) mapping(depth int) (any, bool) {
	p.at++
	all := map[string]any{}
	for !p.next('}') {
		if len(all) > 0 && !p.next(',') {
			return nil, false
		}
		if p.next('}') { // a comma before it is allowed
			break
		}

		key, ok := p.value(depth + 1)
		name, isText := key.(string)
		if !ok || !isText || !p.next(':') {
			return nil, false
		}

		all[name], ok = p.value(depth + 1)
		if !ok {
			return nil, false
		}
	}

	return all, true
}

func (p *literal) list(depth int) (any, bool) {
	p.at++
	all := []any{}
	for !p.next(']') {
		if len(all) > 0 && !p.next(',') {
			return nil, false
		}
		if p.next(']') {
			break
		}

		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}

		all = append(all, v)
	}

	return all, true
}

// quoted reads a text. A backslash takes the next character as it is: what it
// stands for does not matter here.
func (p *literal) quoted() (any, bool) {
	quote := p.text[p.at]
	var out strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == quote:
			p.at++
			return out.String(), true
		case c == '\\' && p.at+1 < len(p.text):
			p.at++
			out.WriteByte(p.text[p.at])
		default:
			out.WriteByte(c)
		}
	}

	return nil, false
}

// word reads a number, or one of the words for nothing, yes and no.
func (p *literal) word() (any, bool) {
	from := p.at

	for p.at < len(p.text) && strings.IndexByte(",:]} \t\r\n", p.text[p.at]) < 0 {
		p.at++
	}

	switch w := p.text[from:p.at]; w {
	case "None", "null", "nan", "NaN":
		return nil, true
	case "True", "true":
		return true, true
	case "False", "false":
		return false, true
	default:
		f, err := strconv.ParseFloat(w, 64)
		return f, err == nil && !math.IsInf(f, 0)
	}
}
