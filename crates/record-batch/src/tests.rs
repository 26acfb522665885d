use proptest as _;
