package server

import (
	"strconv"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/store"
)

// Cursors of lists of jobs. In the order of submission a cursor is the id of the last job of a page. In another order
// it also has what the list is sorted by, as it was: 12.5/j7. It may have changed by the time of the next page.

// cursorOf returns the cursor after a job.
func cursorOf(f *store.JobFilter, last *job.Job) string {
	value := ""

	switch f.Sort {
	case "":
		return string(last.ID)
	case store.SortName:
		if last.Spec != nil {
			value = last.Spec.Name
		}
	case store.SortCost:
		value = strconv.FormatFloat(float64(last.Cost), 'g', -1, 64)
	case store.SortEnded:
		if !last.Ended.IsZero() {
			value = strconv.FormatInt(last.Ended.UnixMicro(), 10)
		}
	}

	return value + "/" + string(last.ID)
}

// turnTo lets a filter begin after a cursor, at the first page if it is "".
func turnTo(f *store.JobFilter, cursor string) error {
	if cursor == "" {
		return nil
	}

	name, value := cursor, ""
	if f.Sort != "" {
		at := strings.LastIndexByte(cursor, '/')
		if at < 0 {
			return badCursor(cursor)
		}

		name, value = cursor[at+1:], cursor[:at]
	}

	number, ok := id.Job(name).Number()
	if !ok {
		return badCursor(cursor)
	}

	switch {
	case f.Sort == "" && f.Oldest:
		f.After = number
	case f.Sort == "":
		f.Before = number
	default:
		f.Last = &store.JobPlace{Number: number}
		if !readPlace(f, value) {
			return badCursor(cursor)
		}
	}

	return nil
}

// readPlace reads what a list is sorted by out of a cursor, and reports whether it could.
func readPlace(f *store.JobFilter, value string) bool {
	switch f.Sort {
	case store.SortName:
		f.Last.Name = value
	case store.SortCost:
		cost, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return false
		}

		f.Last.Cost = money.Amount(cost)
	case store.SortEnded:
		if value == "" {
			return true // it had not ended
		}

		ended, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}

		f.Last.Ended = time.UnixMicro(ended)
	}

	return true
}
