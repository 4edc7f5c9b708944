package yardmaster

import (
	"maps"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// longText is how many bytes a text of a spec must have to be kept once for all jobs that have it.
const longText = 256

// texts keeps the long texts in the specs of jobs that have not ended. The jobs of a sweep have the same script: it is
// in memory once for each user, and counts once.
type texts map[textKey]*longTextRecord

type textKey struct {
	owner id.User
	text  string
}

type longTextRecord struct {
	text string // the one that all jobs have
	jobs int
	// array is what the elements of an array share beside: their spec, with what counts of it.
	array *arrayText
}

// arrayText is the spec of an array.
type arrayText struct {
	spec      *job.Spec
	text      job.Bytes
	longTexts []string
}

// arrayKey is under what the text of an array is kept: no text of a job has a NUL character.
func arrayKey(r *jobRecord) textKey { return textKey{r.Owner, "\x00" + string(r.Array)} }

// added returns how many bytes specs would add to the texts of their owner.
func (t texts) added(owner id.User, jobs []NewJob) job.Bytes {
	var total job.Bytes
	counted := map[string]bool{}

	for i := range jobs {
		total += jobs[i].Spec.TextBytes()
		eachLongText(jobs[i].Spec, func(text string) string {
			if _, known := t[textKey{owner, text}]; known || counted[text] {
				total -= job.Bytes(len(text))
			}

			counted[text] = true

			return text
		})
	}

	return total
}

// take lets a job share its long texts with others, and returns how many bytes that adds.
func (t texts) take(r *jobRecord) job.Bytes {
	if r.Array == "" || r.Amended != nil { // an element that was amended has a spec of its own
		return t.takeOwn(r)
	}

	r.ofArray = true
	record, known := t[arrayKey(r)]

	if known {
		record.jobs++
		r.Spec = record.array.spec

		return 0
	}

	total := t.takeOwn(r)
	t[arrayKey(r)] = &longTextRecord{jobs: 1, array: &arrayText{r.Spec, r.text, r.longTexts}}
	r.text, r.longTexts = 0, nil

	return total
}

// takeOwn is take of a job with a spec of its own.
func (t texts) takeOwn(r *jobRecord) job.Bytes {
	total := r.Spec.TextBytes()
	r.text, r.longTexts = total, nil

	r.Spec = eachLongText(r.Spec, func(text string) string {
		record, known := t[textKey{r.Owner, text}]
		if !known {
			record = &longTextRecord{text: text}
			t[textKey{r.Owner, text}] = record
		} else {
			total -= job.Bytes(len(text))
		}

		record.jobs++
		r.text -= job.Bytes(len(text))
		r.longTexts = append(r.longTexts, record.text)

		return record.text
	})

	return total
}

// drop gives up what take has counted for a job, and returns how many bytes that are.
func (t texts) drop(r *jobRecord) job.Bytes {
	if r.ofArray {
		r.ofArray = false
		record := t[arrayKey(r)]
		record.jobs--

		if record.jobs > 0 {
			return 0
		}

		delete(t, arrayKey(r))
		r.text, r.longTexts = record.array.text, record.array.longTexts
	}

	total := r.text

	for _, text := range r.longTexts {
		key := textKey{r.Owner, text}
		t[key].jobs--

		if t[key].jobs == 0 {
			delete(t, key)

			total += job.Bytes(len(text))
		}
	}

	r.text, r.longTexts = 0, nil

	return total
}

// eachLongText replaces each long text of a spec by what fn returns for it. The spec itself is not changed: others may
// have it.
func eachLongText(s *job.Spec, fn func(string) string) *job.Spec {
	out := s
	own := func() *job.Spec {
		if out == s {
			spec := *s
			out = &spec
		}

		return out
	}

	if len(s.Setup) >= longText {
		own().Setup = fn(s.Setup)
	}

	if len(s.Run) >= longText {
		own().Run = fn(s.Run)
	}

	var env map[string]string
	for name, value := range s.Env {
		if len(value) < longText {
			continue
		}

		if env == nil {
			env = maps.Clone(s.Env)
			own().Env = env
		}

		env[name] = fn(value)
	}

	return out
}
