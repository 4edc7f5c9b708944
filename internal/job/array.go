package job

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Array is the field array of a job file: it makes one job, an element, for each of its values. An element is counted
// from 0, whatever the values are.
type Array struct {
	Range  Steps    // if Values is empty
	Values []string // in the order of the elements
	Limit  int      // how many elements may run at the same time; 0 for any number
}

// Steps are the integers from First to Last, Step apart.
type Steps struct {
	First, Last, Step int
}

// MaxElements is how many elements an array may have, and how many jobs a file may make.
const MaxElements = 10_000

// maxValue bounds the integers of a range, so that counting them cannot overflow.
const maxValue = 1 << 31

// Len returns how many elements the array has.
func (a *Array) Len() int {
	if len(a.Values) > 0 {
		return len(a.Values)
	}

	return (a.Range.Last-a.Range.First)/a.Range.Step + 1
}

// Value returns the value of an element.
func (a *Array) Value(index int) string {
	if len(a.Values) > 0 {
		return a.Values[index]
	}

	return strconv.Itoa(a.Range.First + index*a.Range.Step)
}

// ParseArray reads a range as it is written in a job file: 0..99, 0..99:3 for every third, and behind % how many may
// run at the same time.
func ParseArray(text string) (Array, error) {
	const remedy = "write it as in 0..99, 0..99:5 for every fifth, or 0..99%10 for at most 10 at the same time"
	bad := func(what string) (Array, error) { return Array{}, unitError(what, text, remedy) }

	values, limit, limited := strings.Cut(strings.ReplaceAll(text, " ", ""), "%")
	values, step, stepped := strings.Cut(values, ":")
	first, last, isRange := strings.Cut(values, "..")
	if !isRange {
		return bad("a range of integers or a list of values")
	}

	var a Array
	for _, part := range []struct {
		given bool
		text  string
		least int
		into  *int
		what  string
	}{
		{true, first, -maxValue, &a.Range.First, "a range of integers or a list of values"},
		{true, last, -maxValue, &a.Range.Last, "a range of integers or a list of values"},
		{stepped, step, 1, &a.Range.Step, "a range with a step of at least 1"},
		{limited, limit, 1, &a.Limit, "a range with a limit of at least 1"},
	} {
		if !part.given {
			continue
		}

		n, err := strconv.Atoi(part.text)
		if err != nil || n < part.least || n > maxValue {
			return bad(part.what)
		}

		*part.into = n
	}

	if !stepped {
		a.Range.Step = 1
	}
	if a.Range.Last < a.Range.First {
		return bad("a range from a smaller to a greater integer")
	}

	return a, nil
}

// String writes a range as ParseArray reads it, and a list as in [a, b].
func (a *Array) String() string {
	text := fmt.Sprintf("%d..%d", a.Range.First, a.Range.Last)
	if a.Range.Step > 1 {
		text += ":" + strconv.Itoa(a.Range.Step)
	}

	if len(a.Values) > 0 {
		text = "[" + strings.Join(a.Values, ", ") + "]"
	}

	if a.Limit > 0 {
		text += "%" + strconv.Itoa(a.Limit)
	}

	return text
}

// listed is the JSON form of an array of values.
type listed struct {
	Values []string `json:"values"`
	Limit  int      `json:"limit,omitempty"`
}

// MarshalJSON writes a range as in a job file and a list as values with a limit.
func (a *Array) MarshalJSON() ([]byte, error) {
	if len(a.Values) > 0 {
		return json.Marshal(listed{a.Values, a.Limit})
	}

	return json.Marshal(a.String())
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (a *Array) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '{' {
		var list listed
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}

		*a = Array{Values: list.Values, Limit: list.Limit}

		return nil
	}

	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return err
	}

	parsed, err := ParseArray(word)
	*a = parsed

	return err
}

// Element returns the value of the job in its array and how many elements that has; false for a job that is in none.
func (j *Job) Element() (value string, size int, ok bool) {
	if j.Array == "" || j.Spec == nil || j.Spec.Array == nil || j.Index >= j.Spec.Array.Len() {
		return "", 0, false
	}

	return j.Spec.Array.Value(j.Index), j.Spec.Array.Len(), true
}
