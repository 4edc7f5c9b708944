package metrics

import (
	"errors"
	"io"

	"trainyard/internal/agent/metrics/lines"
	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/logs"
)

// Limits on what one poll does with the output. All of it is read, since its frames lie one after the
// other; a program that prints faster than lines are looked at is sampled.
const (
	outputRead  = 16 << 20
	outputLook  = 512 << 10
	outputRuled = outputLook / 4 // regular expressions are slow
	ruleSteps   = 8 << 20        // of comparing lines with the user's rules, a few hundredths of a second
)

// output reads what the program prints.
type output struct {
	open    func(offset int64) (io.ReadCloser, int64, error)
	parser  *lines.Parser
	ruled   bool
	offset  int64
	at      float64 // when what was read last was printed
	streams [2]lines.Splitter
	idle    int // polls without anything new
}

var outputs = map[lines.Kind]*origin{
	lines.Rule:   {trust: byRule, label: "output (rule)"},
	lines.JSON:   {trust: byPrinted, label: "output (JSON lines)"},
	lines.Dict:   {trust: byGuess, label: "output (dictionary)"},
	lines.Logged: {trust: byLogged, label: "output (Trainer's log)"},
	lines.Bar:    {trust: byGuess, label: "output (tqdm)"},
	lines.Keras:  {trust: byGuess, label: "output (Keras)"},
	lines.Pairs:  {trust: byGuess, label: "output (lines)"},
}

// poll reads what was printed since the last time. It reports whether there is more.
func (o *output) poll(g *Gatherer, ended bool) (more bool, err error) {
	log, size, err := o.open(o.offset)
	if err != nil {
		return false, err
	}

	defer func() { err = errors.Join(err, log.Close()) }()

	emit := func(kind lines.Kind, r reading.Reading) { g.take(outputs[kind], r, o.at) }
	begun := o.offset
	decoder := logs.NewDecoder(io.LimitReader(log, outputRead))
	share := o.share(size - begun)
	looked := 0
	o.parser.Budget = ruleSteps

	for {
		frame, ferr := decoder.Next()
		if ferr != nil {
			err = torn(ferr)
			break
		}

		o.at = seconds(frame.At)
		o.parser.At = o.at

		if frame.Stream == logs.Yard {
			continue
		}

		s := &o.streams[0]
		if frame.Stream == logs.Stderr {
			s = &o.streams[1]
		}

		if float64(looked) > share*float64(decoder.Offset()) {
			s.Skip()
			continue
		}

		looked += len(frame.Data)
		s.Add(frame.Data, func(line []byte) { o.parser.Line(line, emit) })
	}

	o.offset = begun + decoder.Offset()
	o.idle++
	if o.offset > begun {
		o.idle = 0
	}

	more = size-o.offset > 0 && o.offset > begun
	if ended && !more || o.idle == 2 {
		o.flush(g, emit, ended)
	}

	return more, err
}

// share is which part of so many bytes is looked at.
func (o *output) share(size int64) float64 {
	look := int64(outputLook)
	if o.ruled {
		look = min(outputRuled, ruleSteps/2/o.parser.CostPerByte())
	}

	size = min(size, outputRead)
	if size <= look {
		return 2 // all of it
	}

	return float64(look) / float64(size)
}

// flush takes what waits for more that may not come.
func (o *output) flush(g *Gatherer, emit lines.Emit, ended bool) {
	if ended {
		for i := range o.streams {
			o.streams[i].Flush(func(line []byte) { o.parser.Line(line, emit) })
		}
	}

	o.parser.Flush(func(kind lines.Kind, r reading.Reading) { g.take(outputs[kind], r, g.now) })
}

// torn tells damage from the end of what is there.
func torn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}

	return err
}
