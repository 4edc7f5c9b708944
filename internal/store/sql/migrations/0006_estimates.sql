-- Savings were booked when a job started, as the difference between two estimates that nothing corrected. From now on
-- they are booked when the job has ended, from what it did and cost. The old ones keep their amounts under a kind of
-- their own, so that they can be told from the new ones.
UPDATE savings SET kind = 'estimate' WHERE kind = 'place';
