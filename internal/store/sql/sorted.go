package sql

import (
	"context"
	"fmt"
	"math"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/store"
)

// maxSorted is how many jobs are sorted for one page. If more jobs match a filter, the index of the column is followed
// until the page is full: as so many match, that is soon.
const maxSorted = 10_000

// sortColumn is a column by which jobs are sorted. It has an index together with the number.
type sortColumn struct {
	name   string
	hidden string // the same value, for which the index is not used
	value  func(*store.JobPlace) any
}

func sortColumnOf(by store.JobSort) (sortColumn, error) {
	switch by {
	case store.SortName:
		return sortColumn{"jobs.name", "jobs.name || ''", func(p *store.JobPlace) any { return clean(p.Name) }}, nil
	case store.SortCost:
		return sortColumn{"jobs.cost", "jobs.cost + 0", func(p *store.JobPlace) any { return float64(p.Cost) }}, nil
	case store.SortEnded:
		return sortColumn{"jobs.ended", "jobs.ended + 0", func(p *store.JobPlace) any { return micros(p.Ended) }}, nil
	}

	return sortColumn{}, fault.New(fault.Invalid, "bad_sort", "jobs cannot be sorted by %q", string(by)).WithField("sort")
}

// readSorted reads columns of the jobs of a list, sorted by something else than their number.
func readSorted[T any](
	ctx context.Context, s *Store, f *store.JobFilter, list *selection, columns *table, read func(scanner) (T, error),
) ([]T, error) {
	column, err := sortColumnOf(f.Sort)
	if err != nil {
		return nil, err
	}

	few, err := s.areFew(ctx, list)
	if err != nil {
		return nil, err
	}

	var w where
	by, from := column.name, " FROM jobs "

	if few {
		by = column.hidden
		from = list.within(&w)
	} else {
		w.addAll(hiddenConditions(f))
	}

	direction, after := " DESC", "<"
	if f.Oldest {
		direction, after = "", ">"
	}

	if p := f.Last; p != nil {
		w.add("("+by+", jobs.num) "+after+" (?, ?)", column.value(p), int64(min(p.Number, math.MaxInt64)))
	}

	query, err := w.query("SELECT "+columns.list("jobs.")+from, by+direction+", jobs.num"+direction, f.Limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "job", query, w.args, read)
}

// areFew reports whether so few jobs are in a list that they can be sorted. It does not count all jobs there are.
func (s *Store) areFew(ctx context.Context, list *selection) (bool, error) {
	if len(list.always) == 0 && len(list.choice) == 0 {
		return false, nil
	}

	w := where{args: []any{int64(s.sorts + 1)}}
	query := "SELECT count(*) FROM (" + list.numbers(&w) + " LIMIT $1) AS found"

	found, err := collect(ctx, s.read, "job count", query, w.args, readNumber)

	return err == nil && found[0] <= int64(s.sorts), err
}

// numbers writes a query for the numbers of all rows of a list, each combination of alternatives by its index.
func (l *selection) numbers(w *where) string {
	combinations := l.combinations()
	branches := make([]string, len(combinations))

	for i, conditions := range combinations {
		branch := where{args: w.args}
		branch.addAll(conditions)

		branches[i] = fmt.Sprintf("SELECT %s AS num%s%s", l.number, l.from, branch.conditions())
		w.args = branch.args
	}

	return strings.Join(branches, "UNION ALL ")
}

// within adds that a row is one of a list, and returns where such rows are looked for.
func (l *selection) within(w *where) string {
	if combinations := l.combinations(); len(combinations) == 1 {
		w.addAll(combinations[0])
		return l.from
	}

	w.terms = append(w.terms, "jobs.num IN ("+l.numbers(w)+")")

	return " FROM jobs "
}

// hiddenConditions returns the conditions of a filter, written so that a database does not look for the jobs by them:
// it goes along the index of the column by which they are sorted.
func hiddenConditions(f *store.JobFilter) []condition {
	var list []condition

	if f.Node != "" {
		list = append(list, condition{
			"EXISTS (SELECT 1 FROM job_nodes WHERE job_nodes.node = ? AND job_nodes.num = jobs.num)",
			[]any{clean(string(f.Node))},
		})
	}

	if num, err := arrayNumber(f.Array); err == nil && num > 0 {
		list = append(list, condition{arrayTerm(true), []any{num}})
	}

	if f.Single {
		list = append(list, condition{"jobs.array_num + 0 = 0", nil})
	}

	if f.Called != "" {
		list = append(list, equals("jobs.name", true, clean(f.Called)))
	}

	if f.Name != "" {
		list = append(list, nameContains(f.Name))
	}

	if f.Project != "" {
		list = append(list, equals("jobs.project", true, clean(string(f.Project))))
	}

	if !f.Since.IsZero() {
		list = append(list, condition{"jobs.num + 0" + sinceTerm, []any{micros(f.Since)}})
	}

	for _, choice := range [][]condition{jobOwners(f, true), jobStates(f, true)} {
		if len(choice) > 0 {
			list = append(list, either(choice))
		}
	}

	return list
}
