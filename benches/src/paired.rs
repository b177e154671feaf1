//! Comparisons within a round, which a machine that gets slower or warmer does not disturb.

/// Each round's figure over the yard-stick's in the same round. A round that either has missed is left out.
pub(crate) fn ratios(own: &[Option<f64>], yard_stick: &[Option<f64>]) -> Vec<f64> {
    own.iter().zip(yard_stick).filter_map(|(own, yard_stick)| Some((*own)? / (*yard_stick)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_with_themselves_only() {
        let bare = [Some(1.0), Some(2.0), Some(4.0)];
        assert_eq!(ratios(&[Some(2.0), Some(4.0), Some(8.0)], &bare), [2.0, 2.0, 2.0]);
    }

    #[test]
    fn a_round_that_one_of_the_two_has_missed_is_left_out() {
        let bare = [Some(1.0), None, Some(4.0), Some(5.0)];
        assert_eq!(ratios(&[None, Some(4.0), Some(8.0)], &bare), [2.0]);
    }
}
