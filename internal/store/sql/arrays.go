package sql

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
)

// arrayTable has what the elements of an array share. It is written with the first of them.
var arrayTable = &table{
	name: "arrays", key: "num", frozen: true,
	columns: []string{"num", "owner", "project", "name", "submitted", "spec"},
}

// emptyArrays are the rows of arrays of which no element is left.
var emptyArrays = &table{
	name: "arrays", key: "num",
	unless: "EXISTS (SELECT 1 FROM jobs WHERE jobs.array_num = arrays.num AND jobs.array_num > 0)",
}

// arrayNumber returns the number in an array's id, which is that of its first element; 0 for no array.
func arrayNumber(a id.Array) (int64, error) {
	if a == "" {
		return 0, nil
	}

	num, ok := a.Number()
	if !ok || num > math.MaxInt64 {
		return 0, fmt.Errorf("invalid array id %q", string(a))
	}

	return int64(num), nil
}

func arrayRow(args []any, j *job.Job) ([]any, error) {
	num, err := arrayNumber(j.Array)
	if err != nil {
		return nil, err
	}

	spec, err := json.Marshal(j.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode the spec of array %s: %w", j.Array, err)
	}

	return append(args, num, clean(string(j.Owner)), clean(string(j.Project)), clean(j.Spec.Name), micros(j.Submitted),
		string(spec)), nil
}

// beginsArray reports whether an array is stored with a job: its first element, which may run already when it is first
// stored. What is stored stays.
func beginsArray(j *job.Job) bool {
	return j.Array != "" && j.Index == 0 && j.Amended == nil && j.Spec != nil
}

// storedArray is a row of arrays.
type storedArray struct {
	num   int64
	array store.Array
	spec  string
}

func scanArray(row scanner) (a storedArray, err error) {
	var name string // the spec has it too
	err = row.Scan(&a.num, (*string)(&a.array.Owner), (*string)(&a.array.Project), &name,
		timeColumn{&a.array.Submitted}, &a.spec)
	a.array.ID = id.NewArray(uint64(a.num))

	return a, err
}

// specCache keeps the job files of arrays: they never change, and all elements share one.
type specCache struct {
	mu    sync.Mutex
	specs map[int64]*job.Spec
}

// maxSpecs bounds how many are kept.
const maxSpecs = 1000

func (c *specCache) get(num int64) *job.Spec {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.specs[num]
}

func (c *specCache) put(num int64, s *job.Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.specs == nil || len(c.specs) >= maxSpecs {
		c.specs = map[int64]*job.Spec{}
	}

	c.specs[num] = s
}

// readSpecs returns the job files of arrays. There are none of arrays that are not there.
func (s *Store) readSpecs(ctx context.Context, q querier, nums []int64) (map[int64]*job.Spec, error) {
	specs := make(map[int64]*job.Spec, len(nums))
	var missing []any

	for _, num := range nums {
		if known := s.specs.get(num); known != nil {
			specs[num] = known
		} else {
			missing = append(missing, num)
		}
	}

	for part := range slices.Chunk(missing, maxPage) {
		var w where
		w.add("num IN ("+marks(len(part))+")", part...)

		rows, err := collect(ctx, q, "array", arrayTable.selects()+w.conditions(), w.args, scanArray)
		if err != nil {
			return nil, err
		}

		for i := range rows {
			spec, err := rows[i].decode()
			if err != nil {
				return nil, badRow(ctx, "array", err)
			}

			specs[rows[i].num] = spec
			s.specs.put(rows[i].num, spec)
		}
	}

	return specs, nil
}

func (a *storedArray) decode() (*job.Spec, error) {
	spec := &job.Spec{}
	if err := json.Unmarshal([]byte(a.spec), spec); err != nil {
		return nil, fmt.Errorf("decode array %s: %w", a.array.ID, err)
	}

	return spec, nil
}

// decodeJobs decodes jobs that were read, with the job files of their arrays.
func (s *Store) decodeJobs(ctx context.Context, q querier, stored []storedJob) ([]job.Job, error) {
	arrays := map[int64]bool{}
	for i := range stored {
		if stored[i].array > 0 {
			arrays[stored[i].array] = true
		}
	}

	var specs map[int64]*job.Spec

	if len(arrays) > 0 {
		var err error
		specs, err = s.readSpecs(ctx, q, slices.Sorted(maps.Keys(arrays)))
		if err != nil {
			return nil, err
		}
	}

	jobs := make([]job.Job, len(stored))
	for i := range stored {
		j, err := stored[i].decode(specs)
		if err != nil {
			return nil, badRow(ctx, "job", err)
		}

		jobs[i] = j
	}

	return jobs, nil
}

// Arrays lists arrays, newest first, with how many of their elements have which status.
func (s *Store) Arrays(ctx context.Context, f store.ArrayFilter) ([]store.Array, error) {
	var w where

	if f.ID != "" {
		num, err := arrayNumber(f.ID)
		if err != nil {
			return nil, nil //nolint:nilerr // it is the id of no array
		}

		w.add("arrays.num = ?", num)
	}

	if f.Owner != "" {
		terms, args := []string{"arrays.owner = ?"}, []any{clean(string(f.Owner))}
		for _, p := range f.Projects {
			terms, args = append(terms, "arrays.project = ? AND arrays.project <> ''"), append(args, clean(string(p)))
		}

		w.add("("+strings.Join(terms, " OR ")+")", args...)
	}

	if f.Project != "" {
		w.add("arrays.project = ?", clean(string(f.Project)))
	}

	if f.Name != "" {
		w.add("lower(arrays.name) LIKE ? ESCAPE '!'", "%"+escapeLike(strings.ToLower(clean(f.Name)))+"%")
	}

	if f.Active {
		w.add(`EXISTS (SELECT 1 FROM jobs WHERE jobs.array_num = arrays.num AND jobs.array_num > 0
			AND jobs.state IN (` + liveStates + `))`)
	}

	if f.Before > 0 {
		w.add("arrays.num < ?", int64(min(f.Before, math.MaxInt64)))
	}

	query, err := w.query(arrayTable.selects(), "arrays.num DESC", f.Limit)
	if err != nil {
		return nil, err
	}

	rows, err := collect(ctx, s.read, "array", query, w.args, scanArray)
	if err != nil || len(rows) == 0 {
		return nil, err
	}

	return s.fillArrays(ctx, rows)
}

// fillArrays adds the job files of arrays and what is known of their elements.
func (s *Store) fillArrays(ctx context.Context, rows []storedArray) ([]store.Array, error) {
	list := make([]store.Array, len(rows))
	at := make(map[int64]*store.Array, len(rows))
	nums := make([]any, len(rows))

	for i := range rows {
		list[i] = rows[i].array
		list[i].Counts = map[job.Status]int{}
		at[rows[i].num], nums[i] = &list[i], rows[i].num

		spec, err := rows[i].decode()
		if err != nil {
			return nil, badRow(ctx, "array", err)
		}

		list[i].Spec = spec
	}

	for part := range slices.Chunk(nums, maxPage) {
		groups, err := s.elementGroups(ctx, part)
		if err != nil {
			return nil, err
		}

		for i := range groups {
			g := &groups[i]
			a := at[g.array]
			a.Counts[g.kind.Status()] += g.jobs
			a.Cost += g.kind.Cost

			if g.kind.Ended.After(a.Ended) {
				a.Ended = g.kind.Ended
			}

			a.Active = a.Active || !g.kind.State.Final()
		}
	}

	return list, nil
}

// elementGroup is how many elements of an array have the same state and cause, with their cost and last end.
type elementGroup struct {
	jobGroup
	array int64
}

func (s *Store) elementGroups(ctx context.Context, nums []any) ([]elementGroup, error) {
	var w where
	w.add("jobs.array_num IN ("+marks(len(nums))+")", nums...)
	w.add("jobs.array_num > 0")

	query := "SELECT jobs.array_num, jobs.state, jobs.cause, count(*), sum(jobs.cost), max(jobs.ended) FROM jobs " +
		w.conditions() + "GROUP BY jobs.array_num, jobs.state, jobs.cause"

	return collect(ctx, s.read, "element", query, w.args, func(row scanner) (g elementGroup, err error) {
		err = row.Scan(&g.array, (*string)(&g.kind.State), (*string)(&g.kind.Cause), &g.jobs, &g.kind.Cost,
			timeColumn{&g.kind.Ended})
		return g, err
	})
}

// Array returns one array.
func (s *Store) Array(ctx context.Context, a id.Array) (store.Array, error) {
	var list []store.Array
	if _, ok := a.Number(); ok {
		var err error
		list, err = s.Arrays(ctx, store.ArrayFilter{ID: a, Limit: 1})
		if err != nil {
			return store.Array{}, err
		}
	}

	if len(list) == 0 {
		return store.Array{}, fault.New(fault.NotFound, "array_not_found", "array %s not found", a).
			WithRemedy("list arrays with: trainyard jobs")
	}

	return list[0], nil
}
