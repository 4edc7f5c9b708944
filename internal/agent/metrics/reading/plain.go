package reading

import (
	"bytes"
	"encoding/json"
)

// Unmarshal reads JSON, also such as Python writes it: with NaN, Infinity and -Infinity, which JSON does not have. They
// are read as texts, which a Float takes.
func Unmarshal(data []byte, to any) error {
	if json.Unmarshal(data, to) == nil {
		return nil
	}

	return json.Unmarshal(Quoted(data), to)
}

// Quoted returns JSON in which what stands for a number and is none is in quotes.
func Quoted(data []byte) []byte {
	var out []byte
	done, text := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text || c != 'N' && c != 'I' && c != '-':
		default:
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(data[i:], []byte(word)) {
					out = append(append(append(append(out, data[done:i]...), '"'), word...), '"')
					done = i + len(word)
					i = done - 1

					break
				}
			}
		}
	}

	if done == 0 {
		return data
	}

	return append(out, data[done:]...)
}
