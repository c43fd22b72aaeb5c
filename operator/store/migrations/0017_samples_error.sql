-- What folding windows into rows of `sample` has cost. From here on a row has the means of its windows; before, the values of the
-- first one.
ALTER TABLE attribution
    ADD COLUMN samples_error double precision;  -- largest relative error of an item's mean, weighted by its share; NULL: not known
