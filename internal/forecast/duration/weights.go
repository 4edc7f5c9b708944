package duration

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// weights are many numbers. In JSON they are base64 of their bits, the lowest byte first: a
// third of the size, and not a digit is lost.
type weights []float32

// MarshalJSON writes them.
func (w weights) MarshalJSON() ([]byte, error) {
	raw := make([]byte, 0, 4*len(w))
	for _, v := range w {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}

	return json.Marshal(base64.StdEncoding.EncodeToString(raw))
}

// UnmarshalJSON reads them.
func (w *weights) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("read weights: %w", err)
	}

	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(raw)%4 != 0 {
		return fmt.Errorf("read weights: not a list of numbers")
	}

	*w = make(weights, len(raw)/4)
	for i := range *w {
		v := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		if !finite(float64(v)) {
			return fmt.Errorf("read weights: number %d is not finite", i)
		}

		(*w)[i] = v
	}

	return nil
}
