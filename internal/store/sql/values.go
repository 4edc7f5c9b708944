package sql

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// micros returns a time in its stored form: microseconds since 1970 in UTC, 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}

	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}

	return time.UnixMicro(us).UTC()
}

// clean returns a text in its stored form. Reasons may quote output of programs; PostgreSQL accepts
// neither invalid UTF-8 nor NUL, and a commit must not fail because of that.
func clean(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}

	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// encodeList encodes a list or map as JSON, an empty one as "".
func encodeList(value any, size int) (string, error) {
	if size == 0 {
		return "", nil
	}

	text, err := json.Marshal(value)

	return string(text), err
}

// decodeList decodes what encodeList wrote.
func decodeList(text string, into any) error {
	if text == "" {
		return nil
	}

	return json.Unmarshal([]byte(text), into)
}

// scanner is a single row, or the current one of several.
type scanner interface {
	Scan(into ...any) error
}

// timeColumn scans microseconds into a time.
type timeColumn struct{ to *time.Time }

// Scan implements sql.Scanner.
func (c timeColumn) Scan(value any) error {
	us, ok := value.(int64)
	if !ok {
		return fmt.Errorf("a time must be stored as a number, got %T", value)
	}

	*c.to = fromMicros(us)

	return nil
}
