-- The column holds more than the override of a placement rule: the GPU that the expected run time of a job is for, and how long
-- its ended runs took.

ALTER TABLE jobs RENAME COLUMN place_override TO extras;
